#!/usr/bin/env bash
# Installs what tests run of Debian's: Slurm, kubectl, Prometheus, iptables, Chromium. As root.
set -euo pipefail

packages=()
for pair in munged:munge slurmctld:slurm-wlm kubectl:kubernetes-client promtool:prometheus \
	iptables:iptables chromium:chromium; do
	command -v "${pair%:*}" > /dev/null || packages+=("${pair#*:}")
done
if [ ${#packages[@]} = 0 ]; then
	exit 0
fi
if [ "$(id -u)" != 0 ] || ! command -v apt-get > /dev/null; then
	echo "it takes root and apt-get to install ${packages[*]}: their tests are skipped" >&2
	exit 0
fi
export DEBIAN_FRONTEND=noninteractive RUNLEVEL=1 # no daemon starts: tests start their own
if ! { apt-get update -qq && apt-get install -y -qq --no-install-recommends "${packages[@]}"; } > /dev/null; then
	echo "${packages[*]} cannot be installed: their tests are skipped" >&2
fi
