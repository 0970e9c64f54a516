package price

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"stoa/agentsvc"
	"stoa/billing/amount"
	"stoa/billing/change"
	"stoa/tenancy/audit"
	"stoa/tenancy/db"
)

// Version is a version of the price book. It never changes; it can be withdrawn until it is in force.
type Version struct {
	Version  string
	Currency string
	// Effective is when the version comes into force. It ends when another version of the same currency does.
	Effective time.Time
	Items     []Item
	CreatedAt time.Time
}

// Item is a price: Amount, in nano-units, for Per units of a meter. Provider and Model are patterns; "" matches
// all.
type Item struct {
	Kind     string
	Meter    string
	Provider string
	Model    string
	Per      int64
	Amount   amount.Money
}

// storedItem is the JSON of a [Item] in column price.items. Fields may be added; a renamed field would lose its
// value in rows that exist.
type storedItem struct {
	Kind     string       `json:"kind"`
	Meter    string       `json:"meter"`
	Provider string       `json:"provider,omitempty"`
	Model    string       `json:"model,omitempty"`
	Per      int64        `json:"per"`
	Amount   amount.Money `json:"amount"`
}

// The kinds of prices: what the platform pays, and what it charges the app.
const (
	Cost   = "cost"
	Charge = "charge"
)

// MaxNameBytes bounds names, in bytes. maxItems bounds the prices of a version. maxPer bounds [Item.Per]: its product
// with a million, for microseconds, must fit 64 bits.
const (
	MaxNameBytes = 63
	maxItems     = 10_000
	maxPer       = 1_000_000_000_000
)

// validate returns an error with [agentsvc.CodeInvalid] for the first invalid field.
func (v Version) validate() error {
	switch {
	case !IsValidName(v.Version):
		return agentsvc.NewInvalidError("version", "must be 1 to %d letters, digits, and . _ - between them", MaxNameBytes)
	case !amount.IsCurrency(v.Currency):
		return agentsvc.NewInvalidError("currency", "must be the code of a currency (ISO 4217), such as USD")
	case v.Effective.IsZero():
		return agentsvc.NewInvalidError("effective_from", "is missing: the time from which the prices hold")
	case len(v.Items) == 0 || len(v.Items) > maxItems:
		return agentsvc.NewInvalidError("items", "there are %d; 1 to %d make a price book", len(v.Items), maxItems)
	}
	seen := map[Item]bool{}
	for i, it := range v.Items {
		at := fmt.Sprintf("items[%d].", i)
		if err := it.validate(at); err != nil {
			return err
		}
		// Two prices of the same meter for the same pattern: which one holds would depend on their order.
		it.Per, it.Amount = 0, 0
		if seen[it] {
			return agentsvc.NewInvalidError(strings.TrimSuffix(at, "."), "is a duplicate: the same kind, meter, provider and model")
		}
		seen[it] = true
	}
	return nil
}

// validate returns an error with [agentsvc.CodeInvalid] for the first invalid field. at is the path of the item, with a
// dot at its end.
func (it Item) validate(at string) error {
	switch {
	case it.Kind != Cost && it.Kind != Charge:
		return agentsvc.NewInvalidError(at+"kind", "must be %s or %s", Cost, Charge)
	case !slices.Contains(amount.Meters, it.Meter):
		return agentsvc.NewInvalidError(at+"meter", "%.40q is no meter; there are %s", it.Meter, strings.Join(amount.Meters, ", "))
	case it.Per < 1 || it.Per > maxPer:
		return agentsvc.NewInvalidError(at+"per", "must be a whole number from 1 to %d: how many the amount is for", int64(maxPer))
	case it.Amount < 0:
		return agentsvc.NewInvalidError(at+"amount", "must be nano-units of the currency, 0 or more")
	case len(it.Provider) > MaxPatternBytes || len(it.Model) > MaxPatternBytes:
		return agentsvc.NewInvalidError(at+"model", "must be at most %d bytes", MaxPatternBytes)
	}
	return nil
}

// IsValidName reports whether a name may be that of a version, a plan or a budget: letters, digits, and . _ - except at
// the ends.
func IsValidName(name string) bool {
	if name == "" || len(name) > MaxNameBytes {
		return false
	}
	for i, c := range name {
		inner := i > 0 && i < len(name)-1 && strings.ContainsRune("._-", c)
		if !inner && (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') {
			return false
		}
	}
	return true
}

// AddVersion creates a version of the price book. If the name is taken it returns [agentsvc.CodeExists], even if the
// content is the same.
func (s *Service) AddVersion(ctx context.Context, actor audit.Actor, p Version) (Version, error) {
	if err := p.validate(); err != nil {
		return Version{}, err
	}
	stored := make([]storedItem, len(p.Items))
	for i, it := range p.Items {
		stored[i] = storedItem(it)
	}
	items, err := json.Marshal(stored)
	if err != nil {
		return Version{}, err
	}
	err = s.db.Platform().RunTx(ctx, func(tx *db.Tx) error {
		_, err := tx.Exec(ctx, `INSERT INTO price (version, currency, effective_from, items, created_at) VALUES ($1, $2, $3, $4, stoa_now())`,
			p.Version, p.Currency, p.Effective.UnixMicro(), string(items))
		if err != nil {
			return err
		}
		err = audit.Insert(ctx, tx, audit.Entry{Actor: actor, Action: "price.create", Detail: map[string]any{
			"version": p.Version, "currency": p.Currency, "effective_from": p.Effective.UTC().Format(time.RFC3339), "items": len(p.Items),
		}})
		if err != nil {
			return err
		}
		return change.Record(ctx, tx, change.Price, "")
	})
	if db.IsDuplicate(err) {
		return Version{}, agentsvc.NewError(agentsvc.CodeExists, "there is already a price book %s, and price books do not change: add another version", p.Version)
	}
	if err != nil {
		return Version{}, fmt.Errorf("add price book %s: %w", p.Version, err)
	}
	s.feed.Publish(ctx, change.Price, "", s.readPriceBook)
	for _, made := range s.book.Load().versions {
		if made.Version == p.Version {
			return made, nil
		}
	}
	return p, nil
}

// FindVersion returns a version of the price book. If there is none it returns [agentsvc.CodeNotFound].
func (s *Service) FindVersion(ctx context.Context, version string) (Version, error) {
	all, i, err := s.findVersionIndex(ctx, version)
	if err != nil {
		return Version{}, err
	}
	return all[i], nil
}

// findVersionIndex returns all versions and the index of the one with that name. If there is none it returns
// [agentsvc.CodeNotFound].
func (s *Service) findVersionIndex(ctx context.Context, version string) (all []Version, i int, err error) {
	if all, err = s.ListVersions(ctx); err != nil {
		return nil, 0, err
	}
	if i = slices.IndexFunc(all, func(p Version) bool { return p.Version == version }); i < 0 {
		return nil, 0, agentsvc.NewError(agentsvc.CodeNotFound, "there is no such price book")
	}
	return all, i, nil
}

// withdrawalNotice is how long before it comes into force a version can be withdrawn at the latest. Within it every
// process reads the price book again, so no process prices usage by a version that is withdrawn.
const withdrawalNotice = 2 * change.ReloadInterval

// RemoveVersion withdraws a version that is not in force. It returns [agentsvc.CodePrecondition] if the version is in
// force or will be within withdrawalNotice, or if its withdrawal would change the default currency;
// [agentsvc.CodeNotFound] if there is none.
func (s *Service) RemoveVersion(ctx context.Context, actor audit.Actor, version string) error {
	all, i, err := s.findVersionIndex(ctx, version)
	if err != nil {
		return err
	}
	p := all[i]
	if remaining := newPriceBook(slices.Delete(all, i, i+1)); remaining.defaultCurrency != "" && remaining.defaultCurrency != s.book.Load().defaultCurrency {
		return agentsvc.NewError(agentsvc.CodePrecondition, "without price book %s, the first one, apps would be charged in %s", version, remaining.defaultCurrency)
	}
	err = s.db.Platform().RunTx(ctx, func(tx *db.Tx) error {
		// The database's clock decides: the clocks of processes differ.
		n, err := tx.Exec(ctx, `DELETE FROM price WHERE version = $1 AND effective_from > stoa_now() + CAST($2 AS BIGINT)`, version, withdrawalNotice.Microseconds())
		if err != nil {
			return err
		}
		if n == 0 {
			return agentsvc.NewError(agentsvc.CodePrecondition, "price book %s is in force, or will be within %s; make another version", version, withdrawalNotice)
		}
		err = audit.Insert(ctx, tx, audit.Entry{Actor: actor, Action: "price.delete", Detail: map[string]any{
			"version": version, "currency": p.Currency, "effective_from": p.Effective.UTC().Format(time.RFC3339),
		}})
		if err != nil {
			return err
		}
		return change.Record(ctx, tx, change.Price, "")
	})
	if err != nil {
		return fmt.Errorf("withdraw price book %s: %w", version, err)
	}
	s.feed.Publish(ctx, change.Price, "", s.readPriceBook)
	return nil
}

// ListVersions reads all versions, sorted by Effective, latest first.
func (s *Service) ListVersions(ctx context.Context) ([]Version, error) {
	if err := s.readPriceBook(ctx); err != nil {
		return nil, err
	}
	return slices.Clone(s.book.Load().versions), nil
}

// readPriceBook reads all versions into the cache.
func (s *Service) readPriceBook(ctx context.Context) error {
	s.reloadMu.Lock()
	defer s.reloadMu.Unlock()
	book, err := readBook(ctx, s.query)
	if err != nil {
		return err
	}
	s.book.Store(book)
	return nil
}
