#!/usr/bin/env bash
# Installs Slurm and kubectl as Debian packages them. As root; quiet where they are there.
set -euo pipefail

for command in munged slurmctld slurmd kubectl; do
	command -v "$command" > /dev/null || missing=$command
done
if [ -z "${missing:-}" ]; then
	exit 0
fi
if [ "$(id -u)" != 0 ] || ! command -v apt-get > /dev/null; then
	echo "there is no $missing here, and it takes root and apt-get to install it: its tests are skipped" >&2
	exit 0
fi
export DEBIAN_FRONTEND=noninteractive RUNLEVEL=1 # no daemon starts: tests start their own
if ! { apt-get update -qq && apt-get install -y -qq --no-install-recommends slurm-wlm munge kubernetes-client; } > /dev/null; then
	echo "Slurm and kubectl cannot be installed: their tests are skipped" >&2
fi
