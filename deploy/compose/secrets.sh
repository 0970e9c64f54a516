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

head -c 24 /dev/urandom | od -An -tx1 | tr -d ' \n' | create postgres
head -c 24 /dev/urandom | od -An -tx1 | tr -d ' \n' | create metrics
head -c 18 /dev/urandom | od -An -tx1 | tr -d ' \n' | create grafana
printf 'postgres://stoa:%s@postgres:5432/stoa?sslmode=disable' "$(cat secrets/postgres)" | create database
printf 'STOA_ADMIN_SECRET=%s\nSTOA_MASTER_KEY=%s\nSTOA_METRICS_TOKEN=%s\n' "$(random)" "$(random)" "$(cat secrets/metrics)" | create stoa
