package webhook

import (
	"cmp"
	"net/http"
	"slices"
	"strings"

	"stoa/agentsvc/runtime"
	"stoa/agentsvc/surface"
	"stoa/agentsvc/surface/encode"
	"stoa/agentsvc/surface/response"
	"stoa/agentsvc/trigger"
)

// handleListTriggers answers with the app's triggers, sorted by agent: schedules with their next and last start,
// and webhooks with their path.
func (h handler) handleListTriggers(w http.ResponseWriter, r *http.Request) error {
	v := surface.RequestOf(r)
	rows, err := trigger.LoadStatus(r.Context(), h.db, v.App.ID)
	if err != nil {
		return err
	}
	all := triggerList{Triggers: []triggerInfo{}}
	for agent, s := range v.Runtime.Schedules() {
		all.Triggers = append(all.Triggers, newScheduleInfo(agent, s, rows[agent]))
	}
	for _, hook := range v.Runtime.Webhooks() {
		all.Triggers = append(all.Triggers, triggerInfo{Agent: hook.Agent, Type: "webhook", Path: hook.Path, Methods: hook.Methods})
	}
	slices.SortFunc(all.Triggers, func(a, b triggerInfo) int { return cmp.Compare(a.Agent, b.Agent) })
	return response.WriteJSON(w, http.StatusOK, all)
}

// newScheduleInfo returns a schedule of the current configuration with the state of its row. The row belongs to the
// scheduler, which updates it some time after a new revision is active; until then row.Spec is the old schedule and
// its next start is left out.
func newScheduleInfo(agent string, s *runtime.Schedule, row trigger.ScheduleStatus) triggerInfo {
	info := triggerInfo{Agent: agent, Type: "schedule", LastTaskID: row.Last.Task, LastError: row.Last.Error}
	info.Timezone, info.Cron, _ = strings.Cut(s.Cron.String(), " ")
	if row.Spec == s.Cron.String() { // otherwise row.Next belongs to the schedule before the change
		info.NextAt = encode.FormatTime(row.Next)
	}
	if !row.Last.At.IsZero() {
		info.LastAt = encode.FormatTime(row.Last.At)
	}
	return info
}
