package tenancy

import (
	"maps"
	"reflect"
	"slices"

	"stoa/tenancy/grant"
)

// maxChanges bounds how many changed paths an entry of the audit trail names.
const maxChanges = 300

// describe adds to e's detail what it changes in the app. An entry outlives the app and cannot be changed once it is chained,
// so that it holds values of an allow list only (see [allowed]): in "before" and "after", as far as they differ. Of everything
// else it holds in "changes" the path and the keyed hashes of the value before and after. What is made has nothing before.
func (s *Service) describe(e *edit) {
	before, after := map[string]any{}, map[string]any{}
	changes := newChanges(e.hasher())
	var was []byte
	now := allowed(&e.app)
	if e.was == nil {
		after = now
		changes.compare(nil, hashed(&e.app))
	} else {
		was = e.was.config
		then := allowed(&e.was.app)
		for field, v := range now {
			if !reflect.DeepEqual(then[field], v) {
				before[field], after[field] = then[field], v
			}
		}
		changes.compare(hashed(&e.was.app), hashed(&e.app))
	}
	s.compareConfigs(changes, was, e.config)
	if len(before) > 0 {
		e.detail["before"] = before
	}
	if len(after) > 0 {
		e.detail["after"] = after
	}
	changes.addTo(e.detail)
}

// allowed is what of an app the trail holds as it is.
func allowed(a *App) map[string]any {
	return map[string]any{
		"status": string(a.Status), "revision": a.Revision, "plan": a.Plan, "grants": append(grant.List{}, a.Grants...),
		"limits": map[string]any{
			"weight": a.Limits.Weight, "max_concurrent_tasks": a.Limits.MaxConcurrentTasks, "queue_depth": a.Limits.QueueDepth,
			"rate": append([]Rate{}, a.Limits.Rates...),
		},
	}
}

// hashed is what else there is of an app beside its configuration, by path.
func hashed(a *App) map[string]any {
	values := map[string]any{}
	if a.DisplayName != "" {
		values["display_name"] = a.DisplayName
	}
	if len(a.Labels) > 0 {
		values["labels"] = a.Labels
	}
	if auth := a.Auth; auth != (Auth{}) {
		values["auth.issuer"], values["auth.jwks_url"], values["auth.audience"] = auth.Issuer, auth.JWKSURL, auth.Audience
		values["auth.client_id"], values["auth.refresh_interval"], values["auth.require_tenant_id"] = auth.ClientID, auth.RefreshInterval, auth.RequireTenantID
	}
	return values
}

// compareConfigs adds what differs between two configurations, by the paths of their fields. What is no document has none.
func (s *Service) compareConfigs(changes *changes, was, now []byte) {
	if s.options.Decode == nil || s.options.Leaves == nil || string(was) == string(now) {
		return
	}
	var leaves [2]map[string]any
	for i, src := range [][]byte{was, now} {
		leaves[i] = map[string]any{}
		if doc, err := s.options.Decode(src); err == nil {
			for path, v := range s.options.Leaves(doc) {
				leaves[i]["config."+path] = v
			}
		}
	}
	changes.compare(leaves[0], leaves[1])
}

// changes are the paths at which values differ, with the hashes of the values.
type changes struct {
	hasher Hasher
	paths  map[string]any
	more   int // that are not named
}

func newChanges(h Hasher) *changes { return &changes{hasher: h, paths: map[string]any{}} }

// compare adds the paths whose values differ.
func (c *changes) compare(was, now map[string]any) {
	for _, path := range slices.Sorted(maps.Keys(now)) {
		v := now[path]
		if old, ok := was[path]; !ok {
			c.add(path, map[string]any{"after": c.hasher.of(v)})
		} else if !reflect.DeepEqual(old, v) {
			c.add(path, map[string]any{"before": c.hasher.of(old), "after": c.hasher.of(v)})
		}
	}
	for _, path := range slices.Sorted(maps.Keys(was)) {
		old := was[path]
		if _, ok := now[path]; !ok {
			c.add(path, map[string]any{"before": c.hasher.of(old)})
		}
	}
}

func (c *changes) add(path string, hashes map[string]any) {
	if len(c.paths) >= maxChanges {
		c.more++
		return
	}
	c.paths[path] = hashes
}

func (c *changes) addTo(detail map[string]any) {
	if len(c.paths) > 0 {
		detail["changes"] = c.paths
	}
	if c.more > 0 {
		detail["more_changes"] = c.more
	}
}
