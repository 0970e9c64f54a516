package tenancy

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"stoa/tenancy/db"
)

// Sizes of a page.
const (
	PageSize    = 50 // where the caller names none
	MaxPageSize = 100
)

func checkSize(n int) error {
	if n < 1 || n > MaxPageSize {
		return invalid("page_size", "must be 1 to %d", MaxPageSize)
	}
	return nil
}

// Query selects apps.
type Query struct {
	Status Status // "" = all
	Size   int    // of the page, 1 to 100
	Token  string // of the page, "" = the first
}

// Page is a part of the list of apps.
type Page struct {
	Apps  []App
	Next  string // token of the next page, "" at the end
	Total int    // of all pages
}

// List returns a page of the apps by name, the default one among them.
func (s *Service) List(ctx context.Context, q Query) (Page, error) {
	if err := checkSize(q.Size); err != nil {
		return Page{}, err
	}
	if q.Status != "" && q.Status != Active && q.Status != Suspended && q.Status != Deleting {
		return Page{}, invalid("status", "must be active, suspended or deleting")
	}
	list := "apps/" + string(q.Status)
	after, err := s.keys.Position(list, q.Token)
	if err != nil {
		return Page{}, err
	}
	page := Page{Apps: []App{}}
	var b db.Batch
	b.Query(func(row db.Row) error {
		var r record
		err := r.scan(row)
		page.Apps = append(page.Apps, r.app)
		return err
	}, `SELECT `+appColumns+` FROM app a WHERE a.name > $1 AND (CAST($2 AS TEXT) = '' OR a.status = $2) ORDER BY a.name LIMIT $3`,
		after, string(q.Status), q.Size+1)
	b.Query(func(row db.Row) error { return row.Scan(&page.Total) },
		`SELECT COUNT(*) FROM app WHERE CAST($1 AS TEXT) = '' OR status = $1`, string(q.Status))
	if err := s.db.Platform().Do(ctx, &b); err != nil {
		return Page{}, fmt.Errorf("list apps: %w", err)
	}
	s.listOwn(&page, q.Status, after)
	if len(page.Apps) > q.Size {
		page.Apps = page.Apps[:q.Size]
		page.Next = s.keys.Cursor(list, page.Apps[q.Size-1].Name)
	}
	return page, nil
}

// listOwn puts the default app in its place among the others.
func (s *Service) listOwn(page *Page, status Status, after string) {
	own := s.own.Load()
	if own == nil || status != "" && status != own.app.Status {
		return
	}
	page.Total++
	if own.app.Name > after {
		page.Apps = append(page.Apps, own.app)
		slices.SortFunc(page.Apps, func(a, b App) int { return cmp.Compare(a.Name, b.Name) })
	}
}

// Get returns an app with its masked configuration and its token marks.
func (s *Service) Get(ctx context.Context, name string) (App, error) {
	if name == DefaultName {
		snap, err := s.ownSnapshot(ctx)
		if err != nil {
			return App{}, err
		}
		return s.shown(snap.App, snap.Config), nil
	}
	w, err := s.byName(ctx, name)
	if err != nil {
		return App{}, err
	}
	return s.shown(w.app, w.config), nil
}
