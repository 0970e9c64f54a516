package tenancy

import (
	"encoding/json"
	"reflect"
)

// maxDifference bounds how much of a configuration an entry of the audit trail holds, in bytes. The revisions have all
// of it.
const maxDifference = 64 << 10

const tooLong = "longer than 64 KiB: see the revisions"

// describe adds to e's detail what it changes in the app: the fields that differ, as they were and as they will be, and of
// the configuration only what differs in it, its secrets masked. One that is made has nothing before.
func (s *Service) describe(e *edit) {
	before, after := map[string]any{}, map[string]any{}
	var was []byte
	now := told(&e.app)
	if e.was == nil {
		after = now
	} else {
		was = e.was.config
		then := told(&e.was.app)
		for field, v := range now {
			if !reflect.DeepEqual(then[field], v) {
				before[field], after[field] = then[field], v
			}
		}
	}
	if string(was) != string(e.config) {
		s.describeConfig(was, e.config, before, after)
	}
	if len(before) > 0 {
		e.detail["before"] = before
	}
	if len(after) > 0 {
		e.detail["after"] = after
	}
}

// told is what the trail tells of an app beside its configuration.
func told(a *App) map[string]any {
	var auth any
	if a.Auth != (Auth{}) {
		auth = a.Auth
	}
	return map[string]any{
		"auth": auth, "display_name": a.DisplayName, "status": string(a.Status), "revision": a.Revision, "plan": a.Plan,
		"grants": append([]string{}, a.Grants...), "labels": a.Labels,
		"limits": map[string]any{
			"weight": a.Limits.Weight, "max_concurrent_tasks": a.Limits.MaxConcurrentTasks, "queue_depth": a.Limits.QueueDepth,
			"rate": append([]Rate{}, a.Limits.Rates...),
		},
	}
}

// describeConfig adds what differs between two configurations. What is no document has nothing to tell.
func (s *Service) describeConfig(was, now []byte, before, after map[string]any) {
	if s.options.Decode == nil || s.options.Mask == nil {
		return
	}
	var docs [2]map[string]any
	for i, src := range [][]byte{was, now} {
		docs[i], _ = s.options.Decode(src)
	}
	b, a, differs := difference(docs[0], docs[1], s.options.Mask(docs[0]), s.options.Mask(docs[1]))
	if !differs {
		return // only its spelling does
	}
	if raw, err := json.Marshal([]any{b, a}); err != nil || len(raw) > maxDifference {
		b, a = tooLong, tooLong
	}
	if len(was) > 0 {
		before["config"] = b
	}
	after["config"] = a
}

// difference returns the parts of two documents that differ, as they are to be shown. Lists are compared as a whole.
func difference(was, now, shownWas, shownNow any) (before, after any, differs bool) {
	if reflect.DeepEqual(was, now) {
		return nil, nil, false
	}
	x, isMap := was.(map[string]any)
	y, isMapToo := now.(map[string]any)
	sx, _ := shownWas.(map[string]any)
	sy, _ := shownNow.(map[string]any)
	if !isMap || !isMapToo {
		return shownWas, shownNow, true
	}
	b, a := map[string]any{}, map[string]any{}
	for key, v := range x {
		other, stays := y[key]
		if !stays {
			b[key] = sx[key]
		} else if bv, av, differs := difference(v, other, sx[key], sy[key]); differs {
			b[key], a[key] = bv, av
		}
	}
	for key := range y {
		if _, old := x[key]; !old {
			a[key] = sy[key]
		}
	}
	return b, a, true
}
