#!/bin/sh
# backup.sh writes a dump of the database of compose.yaml to the folder backups, records that for the alert of its age, and
# removes dumps older than KEEP_DAYS (14). Run it each day: 15 3 * * * /path/to/deploy/compose/backup.sh
# The dump does not have the master key: keep a copy of secrets/stoa in another place.
set -eu
cd "$(dirname "$0")"
umask 077
mkdir -p backups
begun=$(date -u +%FT%TZ)
file=backups/stoa-$(date -u +%Y%m%dT%H%M%SZ).dump
trap 'rm -f "$file.part"' EXIT

docker compose exec --no-TTY postgres pg_dump --username stoa_backup --format=custom stoa >"$file.part"
# It reads the whole dump, so that one that was cut off is none.
docker compose exec --no-TTY postgres pg_restore --file /dev/null <"$file.part"
sync "$file.part"
mv "$file.part" "$file"
# In a container of its own, so that it does not matter whether stoa-1 runs.
docker compose run --rm --no-TTY --no-deps stoa-1 backup record --begun "$begun"
find backups -name 'stoa-*.dump*' -mtime "+${KEEP_DAYS:-14}" -delete
echo "wrote $PWD/$file"
