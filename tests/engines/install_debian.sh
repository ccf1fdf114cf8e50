#!/usr/bin/env bash
# Installs Slurm as Debian packages it, for slurm_cluster.py. As root; quiet where it is there.
set -euo pipefail

for command in munged slurmctld slurmd; do
	command -v "$command" > /dev/null || missing=$command
done
if [ -z "${missing:-}" ]; then
	exit 0
fi
if [ "$(id -u)" != 0 ] || ! command -v apt-get > /dev/null; then
	echo "there is no $missing here, and it takes root and apt-get to install it: tests of Slurm are skipped" >&2
	exit 0
fi
export DEBIAN_FRONTEND=noninteractive RUNLEVEL=1 # no daemon starts: tests start their own
if ! { apt-get update -qq && apt-get install -y -qq --no-install-recommends slurm-wlm munge; } > /dev/null; then
	echo "Slurm cannot be installed: its tests are skipped" >&2
fi
