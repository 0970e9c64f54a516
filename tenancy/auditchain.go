package tenancy

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"stoa/tenancy/db"
)

// The trail is a chain for each app, and one for what the platform's operator does beside all apps. An entry is written
// with what it tells of, by however many at a time; a moment later [Service.Seal] puts what has been committed behind the
// end of its chain. The end is noted in the chain's head, sealed with the master key.

const (
	// sealInterval is how long an entry stays outside its chain at most, if the database can be reached.
	sealInterval = time.Second
	// sealBatchSize is how many entries one transaction chains.
	sealBatchSize = 200
)

// Names of heads beside the ids of apps.
const (
	platformChain = ""
	allChains     = "*" // its seq is the number of chains
)

// errChainBroken says that the head of a chain, or the entry that it names, is not what this platform left there.
var errChainBroken = errors.New("the end of the chain is not as it was sealed")

// ComputeHash is the hash of e behind the entry whose hash is prev: SHA-256, in hex, of the canonical form, which is one JSON
// array without spaces: prev, id, time in microseconds since 1970, actor, issuer, action, app, app_id, client, request_id and
// detail, whose members are sorted by name.
func (e AuditEntry) ComputeHash(prev string) (string, error) {
	var canonical bytes.Buffer
	enc := json.NewEncoder(&canonical)
	enc.SetEscapeHTML(false)
	detail := e.Detail
	if detail == nil {
		detail = map[string]any{}
	}
	err := enc.Encode([]any{prev, e.ID, e.At.UnixMicro(), e.Actor, e.Issuer, e.Action, e.App, e.AppID, e.Client, e.Request, detail})
	if err != nil {
		return "", fmt.Errorf("audit entry %s: %w", e.ID, err)
	}
	sum := sha256.Sum256(bytes.TrimSuffix(canonical.Bytes(), []byte("\n")))
	return hex.EncodeToString(sum[:]), nil
}

// decodeDetail reads a detail so that each of its numbers is written again as it was.
func decodeDetail(raw []byte) (detail map[string]any, err error) {
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	err = d.Decode(&detail)
	return detail, err
}

// SealChains puts every entry that has been committed into its chain, in the order of their times. A chain whose end is not as
// it was left stays as it is, for whoever verifies it, and the log says so.
func (s *Service) SealChains(ctx context.Context) error {
	for after, first := "", true; ; first = false {
		var chains []string
		var b db.Batch
		b.Query(func(row db.Row) error {
			var id string
			err := row.Scan(&id)
			chains = append(chains, id)
			return err
		}, `SELECT DISTINCT app_id FROM audit WHERE seq = 0 AND (app_id > $1 OR $2) ORDER BY app_id LIMIT 100`, after, first)
		if err := s.db.Platform().Do(ctx, &b); err != nil {
			return fmt.Errorf("look for audit entries to seal: %w", err)
		}
		for _, id := range chains {
			if err := s.sealChain(ctx, id); errors.Is(err, errChainBroken) {
				s.logTampering(ctx, id)
			} else if err != nil {
				return err
			}
			after = id
		}
		if len(chains) < 100 {
			return nil
		}
	}
}

// logTampering says once for each chain that it goes on no more.
func (s *Service) logTampering(ctx context.Context, chain string) {
	if _, reported := s.brokenChains.LoadOrStore(chain, true); !reported {
		s.log.ErrorContext(ctx, "a chain of the audit trail was tampered with and is not continued: run stoa audit verify", "app", chain)
	}
}

func (s *Service) sealChain(ctx context.Context, chain string) error {
	for n := sealBatchSize; n == sealBatchSize; {
		err := s.db.Platform().RunTx(ctx, func(tx *db.Tx) (err error) {
			n, err = s.sealBatch(ctx, tx, chain)
			return err
		})
		if err != nil {
			return fmt.Errorf("seal the audit trail of %q: %w", chain, err)
		}
	}
	return nil
}

// sealBatch chains the oldest entries that are not, and returns how many they were.
func (s *Service) sealBatch(ctx context.Context, tx *db.Tx, chain string) (int, error) {
	h, err := s.lockHead(ctx, tx, chain)
	if err != nil {
		return 0, err
	}
	if err := s.checkLastEntry(ctx, tx, h); err != nil {
		return 0, err
	}
	var entries []AuditEntry
	err = tx.Query(ctx, scanEntries(&entries), `SELECT `+entryColumns+` FROM audit WHERE app_id = $1 AND seq = 0 ORDER BY at, id LIMIT $2`, chain, sealBatchSize)
	if err != nil || len(entries) == 0 {
		return 0, err
	}
	for _, e := range entries {
		hash, err := e.ComputeHash(h.hash)
		if err != nil {
			return 0, err
		}
		if _, err := tx.Exec(ctx, `UPDATE audit SET seq = $2, prev = $3, hash = $4 WHERE id = $1`, e.ID, h.seq+1, h.hash, hash); err != nil {
			return 0, err
		}
		h.seq, h.hash = h.seq+1, hash
	}
	return len(entries), s.storeHead(ctx, tx, h)
}

// checkLastEntry refuses a chain without the entry that it ends with: what came behind would hide that it is gone.
func (s *Service) checkLastEntry(ctx context.Context, tx *db.Tx, h chainHead) error {
	if h.seq == 0 {
		return nil
	}
	there := false
	err := tx.Query(ctx, func(db.Row) error { there = true; return nil }, `SELECT 1 FROM audit WHERE app_id = $1 AND seq = $2 AND hash = $3`, h.chain, h.seq, h.hash)
	if err == nil && !there {
		err = errChainBroken
	}
	return err
}

// chainHead is where a chain ends.
type chainHead struct {
	chain string
	seq   int64
	hash  string
	seal  []byte
}

func (h chainHead) sealedContent() []byte { return fmt.Appendf(nil, "%d %s", h.seq, h.hash) }
func (h chainHead) sealScope() string     { return "audit " + h.chain }

// isGenuine reports whether a head is as this platform left it.
func (s *Service) isGenuine(h chainHead) bool {
	plain, err := s.keys.OpenValue(h.sealScope(), "head", h.seal)
	return err == nil && bytes.Equal(plain, h.sealedContent())
}

// lockHead keeps others from the chain until tx ends and returns its head, a new one for a chain that begins.
func (s *Service) lockHead(ctx context.Context, tx *db.Tx, chain string) (chainHead, error) {
	h := chainHead{chain: chain}
	seal, err := s.keys.SealValue(h.sealScope(), "head", h.sealedContent())
	if err != nil {
		return h, err
	}
	n, err := tx.Exec(ctx, `INSERT INTO audit_head (app_id, seq, hash, seal, master_key) VALUES ($1, 0, '', $2, $3) ON CONFLICT (app_id) DO NOTHING`,
		chain, seal, s.keys.CurrentKeyID())
	if err != nil {
		return h, err
	}
	err = tx.Query(ctx, func(row db.Row) error { return row.Scan(&h.seq, &h.hash, &h.seal) },
		`UPDATE audit_head SET seq = seq WHERE app_id = $1 RETURNING seq, hash, seal`, chain)
	switch {
	case err != nil:
		return h, err
	case !s.isGenuine(h):
		return h, errChainBroken
	case n == 1 && chain != allChains:
		return h, s.countNewChain(ctx, tx, chain)
	}
	return h, nil
}

// countNewChain counts a chain that begins. One that has entries has lost its head: then it does not.
func (s *Service) countNewChain(ctx context.Context, tx *db.Tx, chain string) error {
	headless := false
	err := tx.Query(ctx, func(db.Row) error { headless = true; return nil }, `SELECT 1 FROM audit WHERE app_id = $1 AND seq > 0 LIMIT 1`, chain)
	if err != nil {
		return err
	}
	if headless {
		return errChainBroken
	}
	all, err := s.lockHead(ctx, tx, allChains)
	if err != nil {
		return err
	}
	all.seq++
	return s.storeHead(ctx, tx, all)
}

func (s *Service) storeHead(ctx context.Context, tx *db.Tx, h chainHead) error {
	seal, err := s.keys.SealValue(h.sealScope(), "head", h.sealedContent())
	if err != nil {
		return err
	}
	_, err = tx.Exec(ctx, `UPDATE audit_head SET seq = $2, hash = $3, seal = $4, master_key = $5 WHERE app_id = $1`,
		h.chain, h.seq, h.hash, seal, s.keys.CurrentKeyID())
	return err
}

// resealHeads has the current master key seal the heads that former ones do, so that those can go.
func (s *Service) resealHeads(ctx context.Context) error {
	var old []string
	var b db.Batch
	b.Query(func(row db.Row) error {
		var id string
		err := row.Scan(&id)
		old = append(old, id)
		return err
	}, `SELECT app_id FROM audit_head WHERE master_key <> $1`, s.keys.CurrentKeyID())
	if err := s.db.Platform().Do(ctx, &b); err != nil {
		return fmt.Errorf("look for heads of the audit trail under former master keys: %w", err)
	}
	for _, id := range old {
		err := s.db.Platform().RunTx(ctx, func(tx *db.Tx) error {
			h, err := s.lockHead(ctx, tx, id)
			if err != nil {
				return err
			}
			return s.storeHead(ctx, tx, h)
		})
		if errors.Is(err, errChainBroken) {
			s.logTampering(ctx, id)
		} else if err != nil {
			return fmt.Errorf("seal the head of the audit trail of %q anew: %w", id, err)
		}
	}
	return nil
}

// runSealLoop seals now and then until ctx ends.
func (s *Service) runSealLoop(ctx context.Context) {
	tick := time.NewTicker(sealInterval)
	defer tick.Stop()
	for {
		if err := s.SealChains(ctx); err != nil && ctx.Err() == nil {
			s.log.WarnContext(ctx, "the audit trail could not be chained, its new entries wait", "error", err)
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}
