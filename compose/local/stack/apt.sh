# Installs Debian packages as root, without starting their services.
# Arguments: where the policy is asked for, the packages.
set -eu
export DEBIAN_FRONTEND=noninteractive

# A policy that refuses to start services while this script lives. It knows this
# script's pid: left behind by a SIGKILL, it allows everything and removes itself.
policy=$1
shift
if [ ! -e "$policy" ]; then
	trap 'rm -f "$policy"' EXIT
	trap 'exit 143' HUP INT TERM
	printf '#!/bin/sh\nkill -0 %s 2>/dev/null && exit 101\nrm -f %s\n' "$$" "$policy" >"$policy"
	chmod 755 "$policy"
fi

get() {
	apt-get -q -y -o DPkg::Lock::Timeout=300 "$@"
}


# The package lists may be absent or old: fetch them only then.
get install --no-install-recommends "$@" || {
	get update
	get install --no-install-recommends "$@"
}

# Not started now, and not at the next boot either.
if [ -d /run/systemd/system ]; then
	for unit in postgresql redis-server; do
		systemctl disable --quiet "$unit" 2>/dev/null || true
	done
fi
