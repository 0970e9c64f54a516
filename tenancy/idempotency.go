package tenancy

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/google/uuid"

	"stoa/tenancy/db"
)

const (
	// idempotencyTTL is how long the answer to an idempotency key is kept.
	idempotencyTTL = 24 * time.Hour
	// claimTimeout is how long a call may take before its key is free for another try: its process has died.
	claimTimeout      = 5 * time.Minute
	maxIdempotencyKey = 255
	// maxEndAttempts is how often the end of a call is written where the connection to the database broke.
	maxEndAttempts = 5
)

// IdempotentRequest is a call that carries an idempotency key.
type IdempotentRequest struct {
	Actor  string
	Key    string
	Method string
	Path   string // with its query
	Body   []byte
}

func (r IdempotentRequest) requestHash() string {
	h := sha256.New()
	fmt.Fprintf(h, "%q %q ", r.Method, r.Path)
	h.Write(r.Body)
	return hex.EncodeToString(h.Sum(nil))
}

// CheckIdempotencyKey says what is wrong with an idempotency key.
func CheckIdempotencyKey(key string) error {
	if key == "" || len(key) > maxIdempotencyKey || !utf8.ValidString(key) || strings.ContainsRune(key, 0) {
		return invalidField("Idempotency-Key", "must have 1 to %d characters", maxIdempotencyKey)
	}
	return nil
}

// StoredResponse is what a call was answered, without secrets.
type StoredResponse struct {
	Status int
	Body   []byte
	App    db.ID // the app it tells of, with which it is forgotten; may be ""
}

// IdempotencyClaim is the right to carry out a request. Exactly one of Finish and Abandon ends it.
type IdempotencyClaim struct {
	service    *Service
	actor, key string
	id         string
}

// ClaimIdempotencyKey claims the request's key. If the same request was answered before it returns that answer and no claim;
// [ErrInProgress] says that it is being carried out, [ErrKeyReused] that the key belongs to another request. Keys are
// each actor's own and live for a day.
func (s *Service) ClaimIdempotencyKey(ctx context.Context, r IdempotentRequest) (*IdempotencyClaim, *StoredResponse, error) {
	if err := CheckIdempotencyKey(r.Key); err != nil {
		return nil, nil, err
	}
	c := &IdempotencyClaim{s, r.Actor, r.Key, uuid.NewString()}
	var response *StoredResponse
	err := s.db.Platform().RunTx(ctx, func(tx *db.Tx) (err error) {
		response, err = c.claimKey(ctx, tx, r.requestHash())
		return err
	})
	switch {
	case err != nil:
		return nil, nil, err
	case response != nil:
		return nil, response, nil
	}
	return c, nil, nil
}

// claimKey returns the stored answer, or nil when c holds the key.
func (c *IdempotencyClaim) claimKey(ctx context.Context, tx *db.Tx, request string) (*StoredResponse, error) {
	n, err := tx.Exec(ctx, `INSERT INTO admin_call (actor, key, request, claim, status, body, app_id, created_at)
		VALUES ($1, $2, $3, $4, 0, '', '', stoa_now())
		ON CONFLICT (actor, key) DO UPDATE SET request = excluded.request, claim = excluded.claim, status = 0, body = '', app_id = '',
			created_at = excluded.created_at
		WHERE admin_call.created_at < stoa_now() - $5
			OR admin_call.status = 0 AND admin_call.request = excluded.request AND admin_call.created_at < stoa_now() - $6`,
		c.actor, c.key, request, c.id, idempotencyTTL.Microseconds(), claimTimeout.Microseconds())
	if err != nil || n == 1 {
		return nil, err
	}
	var response StoredResponse
	var stored, body, app string
	err = tx.Query(ctx, func(row db.Row) error { return row.Scan(&stored, &response.Status, &body, &app) },
		`SELECT request, status, body, app_id FROM admin_call WHERE actor = $1 AND key = $2`, c.actor, c.key)
	switch {
	case err != nil:
		return nil, err
	case stored != request:
		return nil, ErrKeyReused
	case response.Status == 0:
		return nil, ErrInProgress
	}
	response.Body, response.App = []byte(body), db.ID(app)
	return &response, nil
}

// StoreResponse keeps the answer for whoever sends the request again.
func (c *IdempotencyClaim) StoreResponse(ctx context.Context, a StoredResponse) error {
	return c.endClaim(ctx, `UPDATE admin_call SET status = $4, body = $5, app_id = $6 WHERE actor = $1 AND key = $2 AND claim = $3`,
		a.Status, string(a.Body), string(a.App))
}

// ReleaseKey frees the key: the call came to nothing and may be tried again.
func (c *IdempotencyClaim) ReleaseKey(ctx context.Context) error {
	return c.endClaim(ctx, `DELETE FROM admin_call WHERE actor = $1 AND key = $2 AND claim = $3 AND status = 0`)
}

func (c *IdempotencyClaim) endClaim(ctx context.Context, sql string, args ...any) error {
	var b db.Batch
	b.Exec(nil, sql, append([]any{c.actor, c.key, c.id}, args...)...)
	err := c.service.db.Platform().Do(ctx, &b)
	for try := 1; db.IsUnavailable(err) && try < maxEndAttempts && ctx.Err() == nil; try++ {
		err = c.service.db.Platform().Do(ctx, &b) // it may be done twice; not done, the key would be taken for as long as claimTimeout
	}
	if err != nil {
		return fmt.Errorf("keep the answer of an idempotent call: %w", err)
	}
	return nil
}

func (s *Service) deleteExpiredKeys(ctx context.Context) error {
	var b db.Batch
	b.Exec(nil, `DELETE FROM admin_call WHERE created_at < stoa_now() - $1`, idempotencyTTL.Microseconds())
	if err := s.db.Platform().Do(ctx, &b); err != nil {
		return fmt.Errorf("forget old idempotency keys: %w", err)
	}
	return nil
}
