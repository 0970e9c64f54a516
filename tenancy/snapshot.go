package tenancy

import (
	"context"
	"fmt"
	"slices"

	"stoa/tenancy/db"
)

// Snapshot is all that a build of an app may read, as it stood at one moment.
type Snapshot struct {
	App     App
	Config  []byte // as it was given: a JSON object or YAML
	Hasher  Hasher // of the app's values on the audit trail
	secrets map[string]string
}

// Secret returns the app's secret of that name. The default app has none.
func (s *Snapshot) Secret(name string) (string, bool) {
	v, ok := s.secrets[name]
	return v, ok
}

// Snapshot reads an app at a revision, 0 for the one in force. An app that is not there or being deleted is
// [ErrNotFound].
func (s *Service) Snapshot(ctx context.Context, id db.ID, revision int64) (*Snapshot, error) {
	if id == DefaultID {
		return s.ownSnapshot(ctx)
	}
	w, err := s.byID(ctx, id, revision)
	if err != nil {
		return nil, err
	}
	return &Snapshot{App: w.app, Config: w.config, Hasher: w.hasher(), secrets: w.secrets}, nil
}

// ownSnapshot is that of the config file, with the token marks and roles that the database holds for it. Each change of
// them lets its generation grow, in every process alike.
func (s *Service) ownSnapshot(ctx context.Context) (*Snapshot, error) {
	own := s.own.Load()
	if own == nil {
		return nil, errNoApp
	}
	side := aside{}
	var b db.Batch
	var beside int64
	side.queryShared(&b, `$1`, string(DefaultID))
	readBeside(&b, &beside)
	if err := s.db.Tenant(DefaultID).Do(ctx, &b); err != nil {
		return nil, fmt.Errorf("read token marks and roles of the default app: %w", err)
	}
	hasher, err := s.ownHasher()
	if err != nil {
		return nil, err
	}
	snap := &Snapshot{App: own.app, Config: own.config, Hasher: hasher}
	side.complete(&snap.App)
	snap.App.Generation += beside
	return snap, nil
}

// readBeside reads a number that grows with what the database holds of the default app.
func readBeside(b *db.Batch, n *int64) {
	b.Query(func(row db.Row) error { return row.Scan(n) },
		`SELECT COALESCE((SELECT MAX(not_before) FROM app_mark WHERE tenant = $1), 0) + COALESCE((SELECT version FROM app_role WHERE tenant = $1), 0)`,
		string(DefaultID))
}

// perQuery is how many apps one statement asks about.
const perQuery = 20

// generations returns those of ids that are there, in one round trip.
func (s *Service) generations(ctx context.Context, ids []db.ID) (map[db.ID]int64, error) {
	got := map[db.ID]int64{}
	var b db.Batch
	var beside int64
	readBeside(&b, &beside)
	for some := range slices.Chunk(ids, perQuery) {
		args := make([]any, perQuery)
		for i := range args {
			args[i] = string(some[min(i, len(some)-1)]) // the text of the statement stays the same
		}
		b.Query(func(row db.Row) error {
			var id string
			var n int64
			err := row.Scan(&id, &n)
			got[db.ID(id)] = n
			return err
		}, `SELECT tenant, generation FROM app WHERE status <> 'deleting' AND tenant IN ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10,
			$11, $12, $13, $14, $15, $16, $17, $18, $19, $20)`, args...)
	}
	if err := s.db.Platform().Do(ctx, &b); err != nil {
		return nil, fmt.Errorf("look for changed apps: %w", err)
	}
	if own := s.own.Load(); own != nil {
		got[DefaultID] = own.app.Generation + beside
	}
	return got, nil
}
