# Installs Debian packages as root, without starting their services.
# Arguments: the path of the policy file, the packages.
set -eu
export DEBIAN_FRONTEND=noninteractive

# The policy refuses to start services while this script runs. It contains the script's
# pid: after a SIGKILL of the script it allows everything and removes itself.
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

# Fetch the package lists only if they are absent or outdated. A package that conflicts with another one (MariaDB
# with MySQL) is not installed in its place.
get install --no-install-recommends --no-remove "$@" || {
	get update
	get install --no-install-recommends --no-remove "$@"
}

# Not started now, and not at the next boot either.
if [ -d /run/systemd/system ]; then
	for unit in postgresql redis-server pgbouncer prometheus; do
		systemctl disable --quiet "$unit" 2>/dev/null || true
	done
fi
