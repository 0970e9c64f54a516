package billing

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"stoa/tenancy"
	"stoa/tenancy/db"
)

// Price is a version of the price book. Once made it never changes; until it holds it can be withdrawn.
type Price struct {
	Version   string
	Currency  string
	Effective time.Time // from when it holds
	Items     []Item
	CreatedAt time.Time
}

// Item says what so many (Per) of a meter cost. Provider and Model are patterns, "" fits all.
type Item struct {
	Kind     string `json:"kind"`
	Meter    string `json:"meter"`
	Provider string `json:"provider,omitempty"`
	Model    string `json:"model,omitempty"`
	Per      int64  `json:"per"`
	Amount   Money  `json:"amount"`
}

// The kinds of prices: what the platform pays, and what it charges the app.
const (
	Cost   = "cost"
	Charge = "charge"
)

// Meters are what can have a price.
var Meters = []string{
	"input_tokens", "output_tokens", "cache_read_tokens", "cache_write_tokens", "reasoning_tokens", "model_calls", "tool_calls", "runs",
	"run_seconds", "embeddings", "stored_bytes",
}

const (
	maxName  = 63
	maxItems = 10_000
	maxPer   = 1_000_000_000_000
)

// check says what is wrong with a version.
func (p Price) check() error {
	switch {
	case !validName(p.Version):
		return invalid("version", "must be 1 to %d letters, digits, and . _ - between them", maxName)
	case !currencies.MatchString(p.Currency):
		return invalid("currency", "must be three capital letters, such as USD")
	case p.Effective.IsZero():
		return invalid("effective_from", "is missing: the time from which the prices hold")
	case len(p.Items) == 0 || len(p.Items) > maxItems:
		return invalid("items", "there are %d; 1 to %d make a price book", len(p.Items), maxItems)
	}
	seen := map[Item]bool{}
	for i, it := range p.Items {
		at := fmt.Sprintf("items[%d].", i)
		if err := it.check(at); err != nil {
			return err
		}
		it.Per, it.Amount = 0, 0
		if seen[it] {
			return invalid(strings.TrimSuffix(at, "."), "is there twice: the same kind, meter, provider and model")
		}
		seen[it] = true
	}
	return nil
}

func (it Item) check(at string) error {
	switch {
	case it.Kind != Cost && it.Kind != Charge:
		return invalid(at+"kind", "must be %s or %s", Cost, Charge)
	case !slices.Contains(Meters, it.Meter):
		return invalid(at+"meter", "%.40q is no meter; there are %s", it.Meter, strings.Join(Meters, ", "))
	case it.Per < 1 || it.Per > maxPer:
		return invalid(at+"per", "must be a whole number from 1 to %d: how many the amount is for", int64(maxPer))
	case it.Amount < 0:
		return invalid(at+"amount", "must be nano-units of the currency, 0 or more")
	case len(it.Provider) > maxPattern || len(it.Model) > maxPattern:
		return invalid(at+"model", "must be at most %d bytes", maxPattern)
	}
	return nil
}

// validName reports whether a name can be one of a version, a plan or a budget.
func validName(name string) bool {
	if name == "" || len(name) > maxName {
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

// AddPrice makes a version of the price book. One of this name that is there already is [ErrExists], whatever it says.
func (s *Service) AddPrice(ctx context.Context, actor string, p Price) (Price, error) {
	if err := p.check(); err != nil {
		return Price{}, err
	}
	items, err := json.Marshal(p.Items)
	if err != nil {
		return Price{}, err
	}
	err = s.db.Platform().Tx(ctx, func(tx *db.Tx) error {
		_, err := tx.Exec(ctx, `INSERT INTO price (version, currency, effective_from, items, created_at) VALUES ($1, $2, $3, $4, stoa_now())`,
			p.Version, p.Currency, p.Effective.UnixMicro(), string(items))
		if err != nil {
			return err
		}
		err = tenancy.Audit(ctx, tx, tenancy.Entry{Actor: actor, Action: "price.create", Detail: map[string]any{
			"version": p.Version, "currency": p.Currency, "effective_from": p.Effective.UTC().Format(time.RFC3339), "items": len(p.Items),
		}})
		if err != nil {
			return err
		}
		return recordChange(ctx, tx, topicPrice, "")
	})
	if db.IsDuplicate(err) {
		return Price{}, refuse(ErrExists, "there is a price book %s, and none ever changes; make another version", p.Version)
	}
	if err != nil {
		return Price{}, fmt.Errorf("add price book %s: %w", p.Version, err)
	}
	s.afterwards(ctx, s.readPrices)
	s.bus.Publish(topicPrice, "")
	for _, made := range s.book.Load().versions {
		if made.Version == p.Version {
			return made, nil
		}
	}
	return p, nil
}

// Price returns a version of the price book. One that is not there is [ErrNotFound].
func (s *Service) Price(ctx context.Context, version string) (Price, error) {
	all, i, err := s.findPrice(ctx, version)
	if err != nil {
		return Price{}, err
	}
	return all[i], nil
}

// findPrice returns all versions, and which of them is the one.
func (s *Service) findPrice(ctx context.Context, version string) (all []Price, i int, err error) {
	if all, err = s.Prices(ctx); err != nil {
		return nil, 0, err
	}
	if i = slices.IndexFunc(all, func(p Price) bool { return p.Version == version }); i < 0 {
		return nil, 0, refuse(ErrNotFound, "there is no such price book")
	}
	return all, i, nil
}

// notice is how long before a version holds it can be withdrawn at the latest: every process has heard of it by then.
const notice = 2 * lookAgain

// RemovePrice withdraws a version that does not hold yet. One that does, or will in a moment, or that says which currency
// apps are charged in that name none, is [ErrPrecondition]; one that is not there is [ErrNotFound].
func (s *Service) RemovePrice(ctx context.Context, actor, version string) error {
	all, i, err := s.findPrice(ctx, version)
	if err != nil {
		return err
	}
	p := all[i]
	if rest := newBook(slices.Delete(all, i, i+1)); rest.currency != "" && rest.currency != s.book.Load().currency {
		return refuse(ErrPrecondition, "without price book %s, the first one, apps would be charged in %s", version, rest.currency)
	}
	err = s.db.Platform().Tx(ctx, func(tx *db.Tx) error {
		n, err := tx.Exec(ctx, `DELETE FROM price WHERE version = $1 AND effective_from > stoa_now() + CAST($2 AS BIGINT)`, version, notice.Microseconds())
		if err != nil {
			return err
		}
		if n == 0 {
			return refuse(ErrPrecondition, "price book %s is in force, or will be within %s; make another version", version, notice)
		}
		err = tenancy.Audit(ctx, tx, tenancy.Entry{Actor: actor, Action: "price.delete", Detail: map[string]any{
			"version": version, "currency": p.Currency, "effective_from": p.Effective.UTC().Format(time.RFC3339),
		}})
		if err != nil {
			return err
		}
		return recordChange(ctx, tx, topicPrice, "")
	})
	if err != nil {
		return fmt.Errorf("withdraw price book %s: %w", version, err)
	}
	s.afterwards(ctx, s.readPrices)
	s.bus.Publish(topicPrice, "")
	return nil
}

// Prices returns all versions, the one that comes into force last first.
func (s *Service) Prices(ctx context.Context) ([]Price, error) {
	if err := s.readPrices(ctx); err != nil {
		return nil, err
	}
	return slices.Clone(s.book.Load().versions), nil
}

func (s *Service) readPrices(ctx context.Context) error {
	s.reading.Lock()
	defer s.reading.Unlock()
	var versions []Price
	var b db.Batch
	b.Query(func(row db.Row) error {
		var p Price
		var from, created int64
		var items string
		if err := row.Scan(&p.Version, &p.Currency, &from, &items, &created); err != nil {
			return err
		}
		p.Effective, p.CreatedAt = micros(from), micros(created)
		err := json.Unmarshal([]byte(items), &p.Items)
		versions = append(versions, p)
		return err
	}, `SELECT version, currency, effective_from, items, created_at FROM price ORDER BY effective_from DESC, created_at DESC, version DESC`)
	if err := s.db.Platform().Do(ctx, &b); err != nil {
		return fmt.Errorf("read the price book: %w", err)
	}
	s.book.Store(newBook(versions))
	return nil
}
