package tenancy

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"

	"stoa/tenancy/db"
)

// actionLoad is what the trail calls it that a process has taken up another configuration of the default app.
const actionLoad = "config.load"

// NoteDefault puts on the audit trail that the default app's configuration is another than the one noted last, by whichever
// process: at a start, or with what it was before after a change of its file.
func (s *Service) NoteDefault(ctx context.Context) error {
	own := s.own.Load()
	if own == nil {
		return nil
	}
	fingerprint, err := s.fingerprint(own.config)
	if err != nil {
		return fmt.Errorf("note the default configuration: %w", err)
	}
	hasher, err := s.ownHasher()
	if err != nil {
		return err
	}
	detail := map[string]any{"fingerprint": fingerprint}
	if was := s.noted.Swap(&own.config); was != nil {
		changes := newChanges(hasher)
		s.compareConfigs(changes, *was, own.config)
		changes.addTo(detail)
	}
	err = s.db.Platform().Tx(ctx, func(tx *db.Tx) error {
		var last string
		err := tx.Query(ctx, func(row db.Row) error { return row.Scan(&last) },
			`SELECT detail FROM audit WHERE app = $1 AND app_id = $2 AND action = $3 ORDER BY at DESC, id DESC LIMIT 1`, DefaultName, string(DefaultID), actionLoad)
		if err != nil {
			return err
		}
		var known struct{ Fingerprint string }
		if last != "" {
			if err := json.Unmarshal([]byte(last), &known); err != nil {
				return err
			}
		}
		if known.Fingerprint == fingerprint {
			return nil
		}
		return Audit(ctx, tx, Entry{Actor: System, Action: actionLoad, App: DefaultName, AppID: DefaultID, Detail: detail})
	})
	if err != nil {
		return fmt.Errorf("note the default configuration: %w", err)
	}
	return nil
}

// fingerprint tells configurations apart, as far as they are not secret.
func (s *Service) fingerprint(config []byte) (string, error) {
	if s.options.Decode != nil && s.options.Mask != nil {
		doc, err := s.options.Decode(config)
		if err != nil {
			return "", err
		}
		if config, err = json.Marshal(s.options.Mask(doc)); err != nil {
			return "", err
		}
	}
	sum := sha256.Sum256(config)
	return hex.EncodeToString(sum[:]), nil
}
