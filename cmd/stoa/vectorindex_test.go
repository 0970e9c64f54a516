package main

import (
	"log/slog"
	"net/http"
	"testing"

	"stoa/tenancy/db"
	"stoa/tenancy/db/dbtest"
)

// TestDeletedAppVectorIndex deletes an app that has an approximate index: its table goes with it.
func TestDeletedAppVectorIndex(t *testing.T) {
	t.Parallel()
	d := dbtest.NewVectorPostgres(t)
	dbtest.InstallVector(t, d)
	h := openServerWith(t, d.URL(), slog.New(slog.DiscardHandler), "../../examples/notifications.yaml")
	var app struct {
		ID string `json:"id"`
	}
	h.requireStatus(t, http.StatusCreated, &app, "POST", "/admin/apps", testSecret, map[string]any{"name": "acme", "config": "llms: {default: {provider: scripted}}\nagents: {assistant: {}}"})
	const id = "0123456789abcdef0123456789abcdef"
	var b db.Batch
	b.Exec(nil, `SELECT stoa_create_vector_index($1, 3)`, id)
	b.Exec(nil, `INSERT INTO vector_index (tenant, store, generation, id, dimensions) VALUES ($1, 'manual', 1, $2, 3)`, app.ID, id)
	if err := d.Platform().Do(t.Context(), &b); err != nil {
		t.Fatal(err)
	}
	dbtest.ExecSQL(t, d.URL(), `INSERT INTO chunk_hnsw_`+id+` (tenant, document, revision, ordinal, embedding) VALUES ('`+app.ID+`', 'a', 1, 1, '[1,2,3]')`)
	h.requireStatus(t, http.StatusNoContent, nil, "DELETE", "/admin/apps/acme", testSecret, nil)
	tables, rows := 0, 0
	var left db.Batch
	left.Query(func(r db.Row) error { return r.Scan(&tables, &rows) },
		`SELECT (SELECT COUNT(*) FROM pg_class WHERE relname LIKE 'chunk\_hnsw\_%' AND relkind = 'r'), (SELECT COUNT(*) FROM vector_index)`)
	if err := d.Platform().Do(t.Context(), &left); err != nil || tables+rows > 0 {
		t.Errorf("the app has left %d tables and %d rows of approximate indexes: %v", tables, rows, err)
	}
}
