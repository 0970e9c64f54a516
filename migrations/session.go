package migrations

import (
	"embed"
	"io/fs"
)

// sessionFiles are the migrations of an app's own session database, which both engines execute.
//
//go:embed session/*.sql
var sessionFiles embed.FS

// SessionMigrations returns the SQL that creates the tables of sessions in an app's own database
// (storage.sessions.database), one text per version in order. Each text is several statements, which the caller must
// execute in one transaction.
func SessionMigrations() ([]string, error) {
	names, err := fs.Glob(sessionFiles, "session/*.sql")
	if err != nil {
		return nil, err
	}
	steps := make([]string, len(names))
	for i, name := range names {
		text, err := sessionFiles.ReadFile(name)
		if err != nil {
			return nil, err
		}
		steps[i] = string(text)
	}
	return steps, nil
}
