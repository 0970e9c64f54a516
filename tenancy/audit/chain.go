package audit

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"stoa/agentsvc"
	"stoa/tenancy/db"
	"stoa/tenancy/keyring"
)

// The audit trail consists of one hash chain per app, and one for the operator's actions outside all apps. An entry is
// inserted, unchained, in the transaction of the change that it records; any number of transactions may do so at a
// time. A moment later [Trail.Seal] appends the committed entries to their chain. The chain's head holds the
// number and the hash of the last entry, and a seal: the same data encrypted under a master key. Someone with access to
// the database alone can therefore not change or remove a chained entry unnoticed. If the database is restored to an
// earlier state, only hashes that were kept elsewhere show it ([Verifier.RequiredHashes]).

const (
	// sealInterval is the time between two runs of Seal, and so the longest time an entry stays outside its chain
	// while the database is available.
	sealInterval = time.Second
	// sealBatchSize is how many entries one transaction appends.
	sealBatchSize = 200
)

// allChains is the id of a head without entries whose number is the count of chains. It reveals a chain that was
// deleted as a whole. The chain of the operator's actions outside all apps has the id "".
const allChains = "*"

// errChainBroken reports that the head of a chain, or the entry that it names, is not what this platform stored.
var errChainBroken = errors.New("the end of the chain is not as it was sealed")

// chains appends entries to the hash chains and seals their heads. Its fields are read-only, except skipped.
type chains struct {
	db   *db.Handle
	keys *keyring.Keyring
	log  *slog.Logger
	// skipped holds what skipUnusable has logged, as chain and text to true, so that each is logged once per process.
	skipped sync.Map
}

// ComputeHash returns the hash of e after an entry with the hash prev: the SHA-256, in hex, of the canonical form. That
// is a JSON array without spaces: prev, id, time in microseconds since 1970, actor, issuer, action, app, app_id,
// client, request_id and detail, whose members are sorted by name. Verifiers outside Stoa depend on this form.
func (e Entry) ComputeHash(prev string) (string, error) {
	var canonical bytes.Buffer
	enc := json.NewEncoder(&canonical)
	enc.SetEscapeHTML(false)
	detail := e.Detail
	if detail == nil {
		detail = map[string]any{}
	}
	err := enc.Encode([]any{prev, e.ID, e.At.UnixMicro(), e.Actor.Name, e.Actor.Issuer, e.Action, e.App, e.AppID, e.Actor.Client, e.Actor.Request, detail})
	if err != nil {
		return "", fmt.Errorf("audit entry %s: %w", e.ID, err)
	}
	sum := sha256.Sum256(bytes.TrimSuffix(canonical.Bytes(), []byte("\n")))
	return hex.EncodeToString(sum[:]), nil
}

// decodeDetail parses a detail and keeps the text of its numbers, since the hash covers the text.
func decodeDetail(raw []byte) (detail map[string]any, err error) {
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	err = d.Decode(&detail)
	return detail, err
}

// sealAll appends every committed entry to its chain, ordered by time. A chain that was tampered with is not
// continued, so that the evidence stays for a verification, and neither is one that is sealed with a master key that this
// process lacks; the log reports both once. Entries with seq 0 are found
// through the partial index audit_loose; first selects the platform's chain as well, whose id is "".
func (c *chains) sealAll(ctx context.Context) error {
	for after, first := "", true; ; first = false {
		var found []string
		var b db.Batch
		b.Query(func(row db.Row) error {
			var id string
			err := row.Scan(&id)
			found = append(found, id)
			return err
		}, `SELECT DISTINCT app_id FROM audit WHERE seq = 0 AND (app_id > $1 OR $2) ORDER BY app_id LIMIT 100`, after, first)
		if err := c.db.Do(ctx, &b); err != nil {
			return fmt.Errorf("look for audit entries to seal: %w", err)
		}
		for _, id := range found {
			if err := c.skipUnusable(ctx, id, c.sealChain(ctx, id)); err != nil {
				return err
			}
			after = id
		}
		if len(found) < 100 {
			return nil
		}
	}
}

// skipUnusable returns err, which appending to a chain returned, unless the chain cannot be continued by this process:
// then it logs why, once per reason, chain and process.
func (c *chains) skipUnusable(ctx context.Context, chain string, err error) error {
	var text string
	switch {
	case errors.Is(err, errChainBroken):
		err, text = errChainBroken, "a chain of the audit trail was tampered with and is not continued: run stoa audit verify"
	case errors.Is(err, keyring.ErrKeyMissing):
		text = "a chain of the audit trail is not continued by this process, which lacks a master key: run stoa secrets status"
	default:
		return err
	}
	if _, reported := c.skipped.LoadOrStore(chain+"\n"+text, true); !reported {
		c.log.ErrorContext(ctx, text, "tenant", chain, "error", err)
	}
	return nil
}

// sealChain appends the entries of one chain, in transactions of at most sealBatchSize entries.
func (c *chains) sealChain(ctx context.Context, chain string) error {
	for n := sealBatchSize; n == sealBatchSize; {
		err := c.db.RunTx(ctx, func(tx *db.Tx) (err error) {
			n, err = c.sealBatch(ctx, tx, chain)
			return err
		})
		if err != nil {
			return fmt.Errorf("seal the audit trail of %q: %w", chain, err)
		}
	}
	return nil
}

// sealBatch appends the oldest unchained entries of a chain and returns their number. The lock on the head makes it
// safe to run in several processes at a time.
func (c *chains) sealBatch(ctx context.Context, tx *db.Tx, chain string) (int, error) {
	h, err := c.lockHead(ctx, tx, chain)
	if err != nil {
		return 0, err
	}
	if err := c.checkLastEntry(ctx, tx, h); err != nil {
		return 0, err
	}
	var entries []Entry
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
	return len(entries), c.storeHead(ctx, tx, h)
}

// checkLastEntry returns errChainBroken if the entry that the head names is missing: appending to such a chain would
// make the loss harder to see.
func (c *chains) checkLastEntry(ctx context.Context, tx *db.Tx, h chainHead) error {
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

// chainHead is the end of a chain: the number and the hash of its last entry, with the seal over both.
type chainHead struct {
	chain string
	seq   int64
	hash  string
	seal  []byte
	// masterKey is the id of the master key that encrypted the seal, as the row names it.
	masterKey string
}

// sealedContent is the plaintext of the seal, sealScope the scope that binds it to the chain.
func (h chainHead) sealedContent() []byte { return fmt.Appendf(nil, "%d %s", h.seq, h.hash) }
func (h chainHead) sealScope() string     { return "audit " + h.chain }

// checkSeal returns errChainBroken if the seal is not valid or does not cover the number and the hash of the head, and
// [keyring.ErrKeyMissing] if this process cannot know that. It believes the row's master key and not the id in the seal:
// a row that names an unknown key makes the process not ready, which no one overlooks.
func (c *chains) checkSeal(h chainHead) error {
	plain, err := c.keys.OpenValue(h.sealScope(), "head", h.seal)
	switch {
	case err == nil && bytes.Equal(plain, h.sealedContent()):
		return nil
	case h.seal != nil && !c.keys.HasKey(h.masterKey):
		return fmt.Errorf("%w %s", keyring.ErrKeyMissing, h.masterKey)
	}
	return errChainBroken
}

// lockHead returns the head of a chain and locks its row until tx ends, which excludes other processes from the chain.
// A missing head is created. The UPDATE that changes nothing takes the lock on both engines, where SQLite has no SELECT
// ... FOR UPDATE. It returns the error of checkSeal.
func (c *chains) lockHead(ctx context.Context, tx *db.Tx, chain string) (chainHead, error) {
	h := chainHead{chain: chain}
	seal, err := c.keys.SealValue(h.sealScope(), "head", h.sealedContent())
	if err != nil {
		return h, err
	}
	n, err := tx.Exec(ctx, `INSERT INTO audit_head (app_id, seq, hash, seal, master_key) VALUES ($1, 0, '', $2, $3) ON CONFLICT (app_id) DO NOTHING`,
		chain, seal, c.keys.CurrentKeyID())
	if err != nil {
		return h, err
	}
	// The row exists now, created here or by another transaction, for whose end the INSERT has waited.
	err = tx.Query(ctx, func(row db.Row) error { return row.Scan(&h.seq, &h.hash, &h.seal, &h.masterKey) },
		`UPDATE audit_head SET seq = seq WHERE app_id = $1 RETURNING seq, hash, seal, master_key`, chain)
	switch {
	case err != nil:
		return h, err
	case c.checkSeal(h) != nil:
		return h, c.checkSeal(h)
	// This transaction created the head, so the number of chains grows.
	case n == 1 && chain != allChains:
		return h, c.countNewChain(ctx, tx, chain)
	}
	return h, nil
}

// countNewChain counts a chain whose head was just created. If the chain already has entries, its head was deleted, and
// the result is errChainBroken.
func (c *chains) countNewChain(ctx context.Context, tx *db.Tx, chain string) error {
	headless := false
	err := tx.Query(ctx, func(db.Row) error { headless = true; return nil }, `SELECT 1 FROM audit WHERE app_id = $1 AND seq > 0 LIMIT 1`, chain)
	if err != nil {
		return err
	}
	if headless {
		return errChainBroken
	}
	all, err := c.lockHead(ctx, tx, allChains)
	if err != nil {
		return err
	}
	all.seq++
	return c.storeHead(ctx, tx, all)
}

// storeHead writes the head with a new seal under the current master key. The caller holds the head's lock.
func (c *chains) storeHead(ctx context.Context, tx *db.Tx, h chainHead) error {
	seal, err := c.keys.SealValue(h.sealScope(), "head", h.sealedContent())
	if err != nil {
		return err
	}
	_, err = tx.Exec(ctx, `UPDATE audit_head SET seq = $2, hash = $3, seal = $4, master_key = $5 WHERE app_id = $1`,
		h.chain, h.seq, h.hash, seal, c.keys.CurrentKeyID())
	return err
}

// adoptChain creates the head of a chain of another installation, whose entries insert adds in tx, after checking each of
// them: numbers without gaps from 1, the link to the entry before, and the hash. Entries with the number 0 are chained later.
func (c *chains) adoptChain(ctx context.Context, tx *db.Tx, chain string, insert func() error) error {
	h, err := c.lockHead(ctx, tx, chain)
	if err != nil {
		return err
	}
	if err := insert(); err != nil {
		return err
	}
	for n := exportBatchSize; n == exportBatchSize; {
		var entries []Entry
		err := tx.Query(ctx, scanEntries(&entries), `SELECT `+entryColumns+` FROM audit WHERE app_id = $1 AND seq > $2 ORDER BY seq LIMIT $3`, chain, h.seq, exportBatchSize)
		if err != nil {
			return err
		}
		for _, e := range entries {
			hash, err := e.ComputeHash(h.hash)
			if err != nil {
				return err
			}
			if e.Seq != h.seq+1 || e.Prev != h.hash || e.Hash != hash {
				return agentsvc.NewInvalidError("audit", "entry %d of the audit trail is not as it was chained: verify the trail of the installation that the file is from", h.seq+1)
			}
			h.seq, h.hash = e.Seq, e.Hash
		}
		n = len(entries)
	}
	return c.storeHead(ctx, tx, h)
}

// resealHeads seals with the current master key the heads that were sealed with former ones, so that those can be
// removed.
func (c *chains) resealHeads(ctx context.Context) error {
	var old []string
	var b db.Batch
	b.Query(func(row db.Row) error {
		var id string
		err := row.Scan(&id)
		old = append(old, id)
		return err
	}, `SELECT app_id FROM audit_head WHERE master_key <> $1`, c.keys.CurrentKeyID())
	if err := c.db.Do(ctx, &b); err != nil {
		return fmt.Errorf("look for heads of the audit trail under former master keys: %w", err)
	}
	for _, id := range old {
		err := c.db.RunTx(ctx, func(tx *db.Tx) error {
			h, err := c.lockHead(ctx, tx, id)
			if err != nil {
				return err
			}
			return c.storeHead(ctx, tx, h)
		})
		if err := c.skipUnusable(ctx, id, err); err != nil {
			return fmt.Errorf("reseal the head of the audit trail of %q: %w", id, err)
		}
	}
	return nil
}

// runSealing runs sealAll every sealInterval until ctx ends, whose error it returns.
func (c *chains) runSealing(ctx context.Context) error {
	tick := time.NewTicker(sealInterval)
	defer tick.Stop()
	for {
		if err := c.sealAll(ctx); err != nil && ctx.Err() == nil {
			c.log.WarnContext(ctx, "the audit trail could not be chained, its new entries wait", "error", err)
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
