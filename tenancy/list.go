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
	DefaultPageSize = 50 // where the caller names none
	MaxPageSize     = 100
)

func checkPageSize(n int) error {
	if n < 1 || n > MaxPageSize {
		return invalidField("page_size", "must be 1 to %d", MaxPageSize)
	}
	return nil
}

// AppQuery selects apps.
type AppQuery struct {
	Status Status // "" = all
	Size   int    // of the page, 1 to 100
	Token  string // of the page, "" = the first
}

// AppPage is a part of the list of apps.
type AppPage struct {
	Apps  []App
	Next  string // token of the next page, "" at the end
	Total int    // of all pages
}

// ListApps returns a page of the apps by name, the default one among them.
func (s *Service) ListApps(ctx context.Context, q AppQuery) (AppPage, error) {
	if err := checkPageSize(q.Size); err != nil {
		return AppPage{}, err
	}
	if q.Status != "" && q.Status != Active && q.Status != Suspended && q.Status != Deleting {
		return AppPage{}, invalidField("status", "must be active, suspended or deleting")
	}
	list := "apps/" + string(q.Status)
	after, err := s.keys.DecodeCursor(list, q.Token)
	if err != nil {
		return AppPage{}, err
	}
	page := AppPage{Apps: []App{}}
	var b db.Batch
	b.Query(func(row db.Row) error {
		var r appRecord
		err := r.scanRow(row)
		page.Apps = append(page.Apps, r.app)
		return err
	}, `SELECT `+appColumns+` FROM app a WHERE a.name > $1 AND (CAST($2 AS TEXT) = '' OR a.status = $2) ORDER BY a.name LIMIT $3`,
		after, string(q.Status), q.Size+1)
	b.Query(func(row db.Row) error { return row.Scan(&page.Total) },
		`SELECT COUNT(*) FROM app WHERE CAST($1 AS TEXT) = '' OR status = $1`, string(q.Status))
	if err := s.db.Platform().Do(ctx, &b); err != nil {
		return AppPage{}, fmt.Errorf("list apps: %w", err)
	}
	s.addDefaultApp(&page, q.Status, after)
	if len(page.Apps) > q.Size {
		page.Apps = page.Apps[:q.Size]
		page.Next = s.keys.EncodeCursor(list, page.Apps[q.Size-1].Name)
	}
	return page, nil
}

// addDefaultApp puts the default app in its place among the others.
func (s *Service) addDefaultApp(page *AppPage, status Status, after string) {
	configured := s.defaultApp.Load()
	if configured == nil || status != "" && status != configured.app.Status {
		return
	}
	page.Total++
	if configured.app.Name > after {
		page.Apps = append(page.Apps, configured.app)
		slices.SortFunc(page.Apps, func(a, b App) int { return cmp.Compare(a.Name, b.Name) })
	}
}

// LoadApp returns an app with its masked configuration and its token marks.
func (s *Service) LoadApp(ctx context.Context, name string) (App, error) {
	if name == DefaultName {
		snap, err := s.loadDefaultSnapshot(ctx)
		if err != nil {
			return App{}, err
		}
		return s.maskedApp(snap.App, snap.Config), nil
	}
	w, err := s.loadByName(ctx, name)
	if err != nil {
		return App{}, err
	}
	return s.maskedApp(w.app, w.config), nil
}
