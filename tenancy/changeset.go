package tenancy

import (
	"maps"
	"reflect"
	"slices"

	"stoa/tenancy/grant"
)

// maxChangedPaths bounds how many changed paths an entry of the audit trail names.
const maxChangedPaths = 300

// describeEdit adds to e's detail what it changes in the app. An entry outlives the app and cannot be changed once it is chained,
// so that it holds values of an allow list only (see [allowedValues]): in "before" and "after", as far as they differ. Of everything
// else it holds in "changes" the path and the keyed hashes of the value before and after. What is made has nothing before.
func (s *Service) describeEdit(e *appEdit) {
	before, after := map[string]any{}, map[string]any{}
	changes := newChangeSet(e.auditHasher())
	var previous []byte
	now := allowedValues(&e.app)
	if e.previous == nil {
		after = now
		changes.compareValues(nil, hashedValues(&e.app))
	} else {
		previous = e.previous.config
		then := allowedValues(&e.previous.app)
		for field, v := range now {
			if !reflect.DeepEqual(then[field], v) {
				before[field], after[field] = then[field], v
			}
		}
		changes.compareValues(hashedValues(&e.previous.app), hashedValues(&e.app))
	}
	s.compareConfigs(changes, previous, e.config)
	if len(before) > 0 {
		e.detail["before"] = before
	}
	if len(after) > 0 {
		e.detail["after"] = after
	}
	changes.addToDetail(e.detail)
}

// allowedValues is what of an app the trail holds as it is.
func allowedValues(a *App) map[string]any {
	return map[string]any{
		"status": string(a.Status), "revision": a.Revision, "plan": a.Plan, "grants": append(grant.List{}, a.Grants...),
		"limits": map[string]any{
			"weight": a.Limits.Weight, "max_concurrent_tasks": a.Limits.MaxConcurrentTasks, "queue_depth": a.Limits.QueueDepth,
			"rate": append([]Rate{}, a.Limits.Rates...),
		},
	}
}

// hashedValues is what else there is of an app beside its configuration, by path.
func hashedValues(a *App) map[string]any {
	values := map[string]any{}
	if a.DisplayName != "" {
		values["display_name"] = a.DisplayName
	}
	if len(a.Labels) > 0 {
		values["labels"] = a.Labels
	}
	if auth := a.Auth; auth != (IssuerConfig{}) {
		values["auth.issuer"], values["auth.jwks_url"], values["auth.audience"] = auth.Issuer, auth.JWKSURL, auth.Audience
		values["auth.client_id"], values["auth.refresh_interval"], values["auth.require_tenant_id"] = auth.ClientID, auth.RefreshInterval, auth.RequireTenantID
	}
	return values
}

// compareConfigs adds what differs between two configurations, by the paths of their fields. What is no document has none.
func (s *Service) compareConfigs(changes *changeSet, previous, now []byte) {
	if s.options.DecodeConfig == nil || s.options.FlattenConfig == nil || string(previous) == string(now) {
		return
	}
	var leaves [2]map[string]any
	for i, src := range [][]byte{previous, now} {
		leaves[i] = map[string]any{}
		if doc, err := s.options.DecodeConfig(src); err == nil {
			for path, v := range s.options.FlattenConfig(doc) {
				leaves[i]["config."+path] = v
			}
		}
	}
	changes.compareValues(leaves[0], leaves[1])
}

// changeSet are the paths at which values differ, with the hashes of the values.
type changeSet struct {
	hasher  Hasher
	paths   map[string]any
	omitted int // that are not named
}

func newChangeSet(h Hasher) *changeSet { return &changeSet{hasher: h, paths: map[string]any{}} }

// compareValues adds the paths whose values differ.
func (c *changeSet) compareValues(previous, now map[string]any) {
	for _, path := range slices.Sorted(maps.Keys(now)) {
		v := now[path]
		if old, ok := previous[path]; !ok {
			c.addPath(path, map[string]any{"after": c.hasher.hashValue(v)})
		} else if !reflect.DeepEqual(old, v) {
			c.addPath(path, map[string]any{"before": c.hasher.hashValue(old), "after": c.hasher.hashValue(v)})
		}
	}
	for _, path := range slices.Sorted(maps.Keys(previous)) {
		old := previous[path]
		if _, ok := now[path]; !ok {
			c.addPath(path, map[string]any{"before": c.hasher.hashValue(old)})
		}
	}
}

func (c *changeSet) addPath(path string, hashes map[string]any) {
	if len(c.paths) >= maxChangedPaths {
		c.omitted++
		return
	}
	c.paths[path] = hashes
}

func (c *changeSet) addToDetail(detail map[string]any) {
	if len(c.paths) > 0 {
		detail["changes"] = c.paths
	}
	if c.omitted > 0 {
		detail["more_changes"] = c.omitted
	}
}
