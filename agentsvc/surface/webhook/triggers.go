package webhook

import (
	"cmp"
	"net/http"
	"slices"
	"strings"

	"stoa/agentsvc/app"
	"stoa/agentsvc/surface"
	"stoa/agentsvc/trigger"
)

// handleListTriggers shows the app's triggers by agent, the schedules with when they are due and how it went last.
func (h handler) handleListTriggers(w http.ResponseWriter, r *http.Request) error {
	v := surface.RequestOf(r)
	rows, err := trigger.LoadSchedules(r.Context(), h.db, v.App.ID)
	if err != nil {
		return err
	}
	all := triggerList{Triggers: []triggerInfo{}}
	for agent, s := range v.Schedules() {
		all.Triggers = append(all.Triggers, newScheduleInfo(agent, s, rows[agent]))
	}
	for _, hook := range v.Webhooks() {
		all.Triggers = append(all.Triggers, triggerInfo{Agent: hook.Agent, Type: "webhook", Path: hook.Path, Methods: hook.Methods})
	}
	slices.SortFunc(all.Triggers, func(a, b triggerInfo) int { return cmp.Compare(a.Agent, b.Agent) })
	return surface.WriteJSON(w, http.StatusOK, all)
}

func newScheduleInfo(agent string, s *app.Schedule, row trigger.ScheduleStatus) triggerInfo {
	info := triggerInfo{Agent: agent, Type: "schedule", LastTaskID: row.Last.Task, LastError: row.Last.Error}
	info.Timezone, info.Cron, _ = strings.Cut(s.Cron.String(), " ")
	if row.Spec == s.Cron.String() { // else it was changed just now
		info.NextAt = surface.FormatTime(row.Next)
	}
	if !row.Last.At.IsZero() {
		info.LastAt = surface.FormatTime(row.Last.At)
	}
	return info
}
