package tenancy

import (
	"maps"
	"reflect"
	"slices"

	"stoa/tenancy/grant"
	"stoa/tenancy/keyring"
)

// maxChangedPaths bounds how many changed paths an audit entry lists; the rest is counted in "more_changes".
const maxChangedPaths = 300

// describeEdit adds to e.detail what e changes. An audit entry outlives the app and cannot be modified once it is
// chained. Therefore it holds values only of the fields in an allow list (see [allowedValues]), under "before" and
// "after" and only those that differ. For every other value it holds, under "changes", the path and the keyed hashes of
// the value before and after. A new app has nothing under "before".
func (s *store) describeEdit(e *appEdit) {
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

// allowedValues returns the fields of an app whose values the audit trail stores in clear.
func allowedValues(a *App) map[string]any {
	return map[string]any{
		"status": string(a.Status), "revision": a.Revision, "plan": a.Plan, "grants": append(grant.List{}, a.Grants...),
		"limits": map[string]any{
			"weight": a.Limits.Weight, "max_concurrent_tasks": a.Limits.MaxConcurrentTasks, "queue_depth": a.Limits.QueueDepth,
			"rate": append([]Rate{}, a.Limits.Rates...),
		},
	}
}

// hashedValues returns the other fields of an app except its configuration, by path. The audit trail stores only their
// hashes, because they may identify persons or internal hosts.
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

// compareConfigs adds the differences between two configurations to changes, by the paths of the leaf values. A text
// that cannot be decoded counts as empty.
func (s *store) compareConfigs(changes *changeSet, previous, now []byte) {
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

// AddChanges adds to the detail of an audit entry, under "changes", the paths at which the values of previous and now differ, with
// the keyed hashes of the values and not the values themselves.
func AddChanges(detail map[string]any, h keyring.Hasher, previous, now map[string]any) {
	changes := newChangeSet(h)
	changes.compareValues(previous, now)
	changes.addToDetail(detail)
}

// changeSet collects the paths at which values differ, with the hashes of the values.
type changeSet struct {
	hasher keyring.Hasher
	// paths maps a path to an object with the members before and after, of which one is missing for an added or removed
	// value.
	paths map[string]any
	// omitted counts the paths beyond maxChangedPaths.
	omitted int
}

func newChangeSet(h keyring.Hasher) *changeSet { return &changeSet{hasher: h, paths: map[string]any{}} }

// compareValues adds the paths whose values differ, in sorted order, so that the paths listed under the bound are
// always the same.
func (c *changeSet) compareValues(previous, now map[string]any) {
	for _, path := range slices.Sorted(maps.Keys(now)) {
		v := now[path]
		if old, ok := previous[path]; !ok {
			c.addPath(path, map[string]any{"after": c.hasher.HashValue(v)})
		} else if !reflect.DeepEqual(old, v) {
			c.addPath(path, map[string]any{"before": c.hasher.HashValue(old), "after": c.hasher.HashValue(v)})
		}
	}
	for _, path := range slices.Sorted(maps.Keys(previous)) {
		old := previous[path]
		if _, ok := now[path]; !ok {
			c.addPath(path, map[string]any{"before": c.hasher.HashValue(old)})
		}
	}
}

// addPath adds a path, or counts it if there are maxChangedPaths already.
func (c *changeSet) addPath(path string, hashes map[string]any) {
	if len(c.paths) >= maxChangedPaths {
		c.omitted++
		return
	}
	c.paths[path] = hashes
}

// addToDetail writes the members "changes" and "more_changes" of an audit entry's detail.
func (c *changeSet) addToDetail(detail map[string]any) {
	if len(c.paths) > 0 {
		detail["changes"] = c.paths
	}
	if c.omitted > 0 {
		detail["more_changes"] = c.omitted
	}
}
