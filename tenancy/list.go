package tenancy

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"stoa/agentsvc"
	"stoa/tenancy/db"
)

// The sizes of a page.
const (
	// DefaultPageSize is used if the caller names no size.
	DefaultPageSize = 50
	MaxPageSize     = 100
)

// AppQuery selects a page of the apps.
type AppQuery struct {
	// Status selects apps by status; "" selects all.
	Status Status
	// Size is the number of apps on the page, 1 to MaxPageSize.
	Size int
	// Token is the page token from the page before, "" for the first page.
	Token string
}

// AppPage is one page of the list of apps.
type AppPage struct {
	Apps []App
	// Next is the token of the next page, "" on the last one.
	Next string
	// Total is the number of apps on all pages.
	Total int
	// encodeToken returns the token of the page after the app of that name.
	encodeToken func(name string) string
}

// ListApps returns a page of the apps, ordered by name, with the default app among them. It selects one row more than
// the page's size to find out whether there is a next page. The position is the name of the last app, so that a page
// does not shift when apps are created or deleted.
func (s *Service) ListApps(ctx context.Context, q AppQuery) (AppPage, error) {
	if q.Size < 1 || q.Size > MaxPageSize {
		return AppPage{}, agentsvc.NewInvalidError("page_size", "must be 1 to %d", MaxPageSize)
	}
	if q.Status != "" && q.Status != Active && q.Status != Suspended && q.Status != Deleting {
		return AppPage{}, agentsvc.NewInvalidError("status", "must be active, suspended or deleting")
	}
	after, err := s.store.keys.DecodeCursor(q.listName(), q.Token)
	if err != nil {
		return AppPage{}, agentsvc.NewInvalidError("page_token", "%v", err)
	}
	page := AppPage{Apps: []App{}, encodeToken: func(name string) string { return s.store.keys.EncodeCursor(q.listName(), name) }}
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
	if err := s.store.db.Platform().Do(ctx, &b); err != nil {
		return AppPage{}, fmt.Errorf("list apps: %w", err)
	}
	s.addDefaultApp(&page, q.Status, after)
	if len(page.Apps) > q.Size {
		page.Apps = page.Apps[:q.Size]
		page.Next = page.TokenAfter(q.Size - 1)
	}
	return page, nil
}

// TokenAfter returns the token of the page that begins after the app with index i, for callers that use a part of the page.
func (p AppPage) TokenAfter(i int) string { return p.encodeToken(p.Apps[i].Name) }

// listName identifies the list of q: a token is one of its list alone.
func (q AppQuery) listName() string { return "apps/" + string(q.Status) }

// addDefaultApp inserts the default app, which has no row, at its place in the order.
func (s *Service) addDefaultApp(page *AppPage, status Status, after string) {
	configured := s.store.defaultApp.Load()
	if configured == nil || status != "" && status != configured.app.Status {
		return
	}
	page.Total++
	if configured.app.Name > after {
		page.Apps = append(page.Apps, configured.app)
		slices.SortFunc(page.Apps, func(a, b App) int { return cmp.Compare(a.Name, b.Name) })
	}
}

// FindAppID returns the id of the app with that name, "" if there is none. It does not look into a cache.
func (s *Service) FindAppID(ctx context.Context, name string) (db.ID, error) {
	return s.store.findAppID(ctx, name)
}

// RequireAppID returns the id of the app with that name, or [agentsvc.CodeNotFound].
func (s *Service) RequireAppID(ctx context.Context, name string) (db.ID, error) {
	return s.store.requireAppID(ctx, name)
}

// LoadApp returns an app with its masked configuration, roles and revocations, or [agentsvc.CodeNotFound].
func (s *Service) LoadApp(ctx context.Context, name string) (App, error) {
	if name == DefaultName {
		snap, err := s.store.loadDefaultSnapshot(ctx)
		if err != nil {
			return App{}, err
		}
		return s.store.maskedApp(snap.App, snap.Config), nil
	}
	w, err := s.store.loadByName(ctx, name)
	if err != nil {
		return App{}, err
	}
	return s.store.maskedApp(w.app, w.config), nil
}
