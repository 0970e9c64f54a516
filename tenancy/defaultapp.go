package tenancy

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"sync/atomic"
	"time"

	"stoa/tenancy/audit"
	"stoa/tenancy/db"
	"stoa/tenancy/grant"
)

// actionConfigLoad is the action of the audit entry which records that a process loaded another configuration of the
// default app.
const actionConfigLoad = "config.load"

// configuredApp is the app of the process's configuration file with its raw text. It is immutable.
type configuredApp struct {
	app    App
	config []byte
}

// DefaultApp is the app of the process's own configuration file, which has no row in the table app.
type DefaultApp struct {
	store *store
	// audited is the configuration that this process last compared with the audit trail; nil before the first Audit.
	audited atomic.Pointer[[]byte]
}

// Set sets the configuration of the default app, which the caller has checked: at the start and after each change of
// the file. It increments the revision. It affects this process only, since each process has its own file; therefore
// revisions of the default app mean nothing to other processes.
func (d *DefaultApp) Set(displayName string, config []byte) {
	now := time.Now()
	next := &configuredApp{config: config, app: App{
		ID: DefaultID, Name: DefaultName, DisplayName: displayName, Status: Active, Version: Version{Revision: 1, Generation: 1},
		Grants: grant.List{}, Labels: map[string]string{}, UpdatedAt: now,
	}}
	if old := d.store.defaultApp.Load(); old != nil {
		next.app.Revision, next.app.Generation = old.app.Revision+1, old.app.Generation+1
	}
	d.store.defaultApp.Store(next)
	d.store.publishChange(DefaultID)
}

// Audit writes an audit entry of actor if the default app's configuration differs from the one recorded last, by
// any process. Call it at the start and after each change of the file. After a change the entry also lists the changed
// paths; at the start the previous configuration is not known. Processes with different files each record their own.
func (d *DefaultApp) Audit(ctx context.Context, actor audit.Actor) error {
	configured := d.store.defaultApp.Load()
	if configured == nil {
		return nil
	}
	fingerprint, err := d.store.configFingerprint(configured.config)
	if err != nil {
		return fmt.Errorf("record the default configuration: %w", err)
	}
	hasher, err := d.store.keys.DeriveHasher(string(DefaultID))
	if err != nil {
		return err
	}
	detail := map[string]any{"fingerprint": fingerprint}
	if previous := d.audited.Swap(&configured.config); previous != nil {
		changes := newChangeSet(hasher)
		d.store.compareConfigs(changes, *previous, configured.config)
		changes.addToDetail(detail)
	}
	err = d.store.db.Platform().RunTx(ctx, func(tx *db.Tx) error {
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
		return audit.Insert(ctx, tx, audit.Entry{Actor: actor, Action: actionConfigLoad, App: DefaultName, AppID: DefaultID, Detail: detail})
	})
	if err != nil {
		return fmt.Errorf("record the default configuration: %w", err)
	}
	return nil
}

// configFingerprint returns the SHA-256 of the masked configuration, in hex. Two configurations that differ only in
// secret values have the same fingerprint: a plain hash of a short secret could be found by trying.
func (s *store) configFingerprint(config []byte) (string, error) {
	if s.options.MaskConfig != nil {
		var err error
		if _, config, err = s.options.MaskConfig(config); err != nil {
			return "", err
		}
	}
	sum := sha256.Sum256(config)
	return hex.EncodeToString(sum[:]), nil
}
