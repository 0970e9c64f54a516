package tenancy

import (
	"context"
	"fmt"
	"slices"

	"stoa/tenancy/db"
	"stoa/tenancy/keyring"
)

// Snapshot is everything that a build of an app may read, as it was at one moment. It is immutable.
type Snapshot struct {
	App App
	// Config is the configuration text as it was given, a JSON object or YAML.
	Config []byte
	// Hasher computes the hashes of the app's values for the audit trail.
	Hasher keyring.Hasher
	// secrets are the decrypted secrets by name.
	secrets map[string]string
}

// Secret returns the app's secret of that name. The default app has none.
func (s *Snapshot) Secret(name string) (string, bool) {
	v, ok := s.secrets[name]
	return v, ok
}

// LoadSnapshot reads an app at a revision, 0 for the current one. An app that does not exist or is being deleted, and a
// revision that is not stored, are [agentsvc.CodeNotFound].
func (s *Service) LoadSnapshot(ctx context.Context, id db.ID, revision int64) (*Snapshot, error) {
	if id == DefaultID {
		return s.store.loadDefaultSnapshot(ctx)
	}
	w, err := s.store.loadByID(ctx, id, revision)
	if err != nil {
		return nil, err
	}
	return &Snapshot{App: w.app, Config: w.config, Hasher: w.auditHasher(), secrets: w.secrets}, nil
}

// LoadDeletingSnapshot is [Service.LoadSnapshot] for an app that is being deleted, for [Options].EraseApp.
func (s *Service) LoadDeletingSnapshot(ctx context.Context, id db.ID) (*Snapshot, error) {
	w, err := s.store.loadByIDWhere(ctx, id, 0, func(status Status) bool { return status == Deleting })
	if err != nil {
		return nil, err
	}
	return &Snapshot{App: w.app, Config: w.config, Hasher: w.auditHasher(), secrets: w.secrets}, nil
}

// loadDefaultSnapshot returns the snapshot of the default app: the configuration of this process's file with the
// revocations and roles in the database. Its generation is the sum of the process's own and the one computed from these
// rows.
func (s *store) loadDefaultSnapshot(ctx context.Context) (*Snapshot, error) {
	configured := s.defaultApp.Load()
	if configured == nil {
		return nil, errNoApp
	}
	side := relatedRows{}
	var b db.Batch
	var databaseGeneration int64
	side.queryShared(&b, `$1`, string(DefaultID))
	b.Query(func(row db.Row) error { return row.Scan(&databaseGeneration) }, defaultGenerationSQL, string(DefaultID))
	if err := s.db.Tenant(DefaultID).Do(ctx, &b); err != nil {
		return nil, fmt.Errorf("read token marks and roles of the default app: %w", err)
	}
	hasher, err := s.keys.DeriveHasher(string(DefaultID))
	if err != nil {
		return nil, err
	}
	snap := &Snapshot{App: configured.app, Config: configured.config, Hasher: hasher}
	side.copyTo(&snap.App)
	snap.App.Generation += databaseGeneration
	return snap, nil
}

// defaultGenerationSQL reads a number that grows with each change of the default app's rows: the time of the latest
// revocation, in microseconds, plus the version of its roles. It replaces the generation column that the default app
// does not have.
const defaultGenerationSQL = `SELECT COALESCE((SELECT MAX(not_before) FROM app_mark WHERE tenant = $1), 0) + COALESCE((SELECT version FROM app_role WHERE tenant = $1), 0)`

// QueryDefaultGeneration adds to b a query that sets n to the generation of the default app. It leaves n as it is if
// this process has no default app.
func (s *Service) QueryDefaultGeneration(b *db.Batch, n *int64) {
	configured := s.store.defaultApp.Load()
	if configured == nil {
		return
	}
	b.Query(func(row db.Row) error {
		var databaseGeneration int64
		err := row.Scan(&databaseGeneration)
		*n = configured.app.Generation + databaseGeneration
		return err
	}, defaultGenerationSQL, string(DefaultID))
}

// queryBatchSize is how many apps one statement of ReadGenerations asks for.
const queryBatchSize = 20

// ReadGenerations returns the generations of those of ids that exist and are not being deleted, in one round trip.
// Every statement has the same number of parameters, filled up with the last id, so that the database can reuse its
// plan.
func (s *Service) ReadGenerations(ctx context.Context, ids []db.ID) (map[db.ID]int64, error) {
	got := map[db.ID]int64{}
	var b db.Batch
	var defaultGeneration int64
	s.QueryDefaultGeneration(&b, &defaultGeneration)
	for some := range slices.Chunk(ids, queryBatchSize) {
		args := make([]any, queryBatchSize)
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
	if err := s.store.db.Platform().Do(ctx, &b); err != nil {
		return nil, fmt.Errorf("look for changed apps: %w", err)
	}
	if defaultGeneration > 0 {
		got[DefaultID] = defaultGeneration
	}
	return got, nil
}
