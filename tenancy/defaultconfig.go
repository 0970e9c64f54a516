package tenancy

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"

	"stoa/tenancy/db"
)

// actionConfigLoad is the action of the audit entry which records that a process loaded another configuration of the
// default app.
const actionConfigLoad = "config.load"

// AuditDefaultConfig writes an audit entry if the default app's configuration differs from the one recorded last, by
// any process. Call it at the start and after each change of the file. After a change the entry also lists the changed
// paths; at the start the previous configuration is not known. Processes with different files each record their own.
func (s *Service) AuditDefaultConfig(ctx context.Context) error {
	configured := s.defaultApp.Load()
	if configured == nil {
		return nil
	}
	fingerprint, err := s.configFingerprint(configured.config)
	if err != nil {
		return fmt.Errorf("note the default configuration: %w", err)
	}
	hasher, err := s.defaultAppHasher()
	if err != nil {
		return err
	}
	detail := map[string]any{"fingerprint": fingerprint}
	if previous := s.auditedConfig.Swap(&configured.config); previous != nil {
		changes := newChangeSet(hasher)
		s.compareConfigs(changes, *previous, configured.config)
		changes.addToDetail(detail)
	}
	err = s.db.Platform().RunTx(ctx, func(tx *db.Tx) error {
		var last string
		err := tx.Query(ctx, func(row db.Row) error { return row.Scan(&last) },
			`SELECT detail FROM audit WHERE app = $1 AND app_id = $2 AND action = $3 ORDER BY at DESC, id DESC LIMIT 1`, DefaultName, string(DefaultID), actionConfigLoad)
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
		return InsertAuditEntry(ctx, tx, AuditEntry{Actor: System, Action: actionConfigLoad, App: DefaultName, AppID: DefaultID, Detail: detail})
	})
	if err != nil {
		return fmt.Errorf("note the default configuration: %w", err)
	}
	return nil
}

// configFingerprint returns the SHA-256 of the masked configuration, in hex. Two configurations that differ only in
// secret values have the same fingerprint: a plain hash of a short secret could be found by trying.
func (s *Service) configFingerprint(config []byte) (string, error) {
	if s.options.DecodeConfig != nil && s.options.MaskConfig != nil {
		doc, err := s.options.DecodeConfig(config)
		if err != nil {
			return "", err
		}
		if config, err = json.Marshal(s.options.MaskConfig(doc)); err != nil {
			return "", err
		}
	}
	sum := sha256.Sum256(config)
	return hex.EncodeToString(sum[:]), nil
}
