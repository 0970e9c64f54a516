package doctor

import (
	"context"
	"fmt"
	"time"

	"stoa/tenancy/db"
	"stoa/tenancy/db/backup"
)

// maxBackupAge is the age of a daily backup that was missed. The alert StoaBackupOld has the same bound.
const maxBackupAge = 36 * time.Hour

// checkLastBackup reports the age of the last backup that is recorded.
func (o openedDatabase) checkLastBackup(ctx context.Context) Check {
	const name = "last_backup"
	action := "schedule stoa backup, see docs/operations/backup.md; if another tool saves the file, let it run stoa backup record"
	if o.db.Engine() == db.Postgres {
		action = "schedule pg_dump or pg_basebackup, and stoa backup record after it, see docs/operations/backup.md"
		// An unknown version has its own check.
		if o.schema.Current == 0 {
			return skip(name, "there are no tables yet")
		}
	}
	at, err := backup.ReadTime(ctx, o.db)
	if err != nil {
		return fail(name, o.hidePasswords(err), "check that the server's login may read the table setting, or the folder of the SQLite file")
	}
	if at.IsZero() {
		return warn(name, "none is recorded", action)
	}
	age := o.now().Sub(at).Round(time.Minute)
	detail := fmt.Sprintf("begun %s ago, at %s", describeAge(age), at.UTC().Format(time.RFC3339))
	if age > maxBackupAge {
		return warn(name, detail, "find out why the schedule has not run since; else "+action)
	}
	return pass(name, "%s", detail)
}

// describeAge returns an age in minutes, hours or days.
func describeAge(age time.Duration) string {
	const day = 24 * time.Hour
	switch {
	case age < 2*time.Hour:
		return fmt.Sprintf("%d min", max(0, age)/time.Minute)
	case age < 2*day:
		return fmt.Sprintf("%d h", age/time.Hour)
	}
	return fmt.Sprintf("%d days", age/day)
}
