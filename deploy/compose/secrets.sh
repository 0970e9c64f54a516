#!/bin/sh
# secrets.sh creates the secrets of compose.yaml in the folder secrets, and changes none that exists. Keep a copy of
# secrets/stoa, which has the master key, apart from the backups of the database.
set -eu
cd "$(dirname "$0")"
mkdir -p secrets
chmod 0700 secrets
# The containers read the files as other users, through mounts of the files alone; the folder protects them on this machine.
umask 022

random() { head -c 32 /dev/urandom | base64; }
create() { [ -e "secrets/$1" ] || { cat >"secrets/$1.new" && mv "secrets/$1.new" "secrets/$1" && echo "created secrets/$1"; }; }

password() { head -c "$1" /dev/urandom | od -An -tx1 | tr -d ' \n'; }
# login NAME prints the password of a login of PostgreSQL, url LOGIN PASSWORD the address of the database for it.
login() { sed -n "s/^$1=//p" secrets/logins; }
url() { printf 'postgres://%s:%s@postgres:5432/stoa?sslmode=disable' "$1" "$2"; }

password 24 | create postgres
password 24 | create metrics
password 18 | create grafana
printf 'stoa_owner=%s\nstoa_login=%s\n' "$(password 24)" "$(password 24)" | create logins
url postgres "$(cat secrets/postgres)" | create admin-database
url stoa_owner "$(login stoa_owner)" | create migrate-database
url stoa_login "$(login stoa_login)" | create database
printf 'STOA_ADMIN_SECRET=%s\nSTOA_MASTER_KEY=%s\nSTOA_METRICS_TOKEN=%s\n' "$(random)" "$(random)" "$(cat secrets/metrics)" | create stoa
