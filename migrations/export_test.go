package migrations

import "database/sql"

// Down runs every down migration, which removes the schema and all data.
func Down(engine string, db *sql.DB) error {
	m, err := openMigrator(engine, db)
	if err != nil {
		return err
	}
	return m.Down()
}
