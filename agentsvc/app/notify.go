package app

import (
	"fmt"

	"stoa/agentsvc"
	"stoa/agentsvc/config"
	"stoa/agentsvc/notify"
	"stoa/agentsvc/trigger"
)

// Notify is what a process that has addresses outside told of tasks wants to know.
type Notify struct {
	Push  bool                      // callers may have addresses of theirs told
	Made  func()                    // called when somebody is about to be told of another task
	Tried func(app, outcome string) // told of each attempt; may be nil
}

// Telling is how addresses outside are told.
type Telling struct {
	Secret []byte // signs what they are told; nil = nothing does
	Inside bool   // those that the app's callers choose may be private ones
}

// Desk sends what addresses outside are told of the app's tasks; nil where none are.
func (a *App) Desk() *notify.Desk { return a.desk }

// Pushes reports whether callers may have addresses of theirs told.
func (a *App) Pushes() bool { return a.pushes }

// desk makes it.
func (b *builder) desk(h House, standing map[string][]*notify.Standing) *notify.Desk {
	if h.Notify == nil || h.Keys == nil {
		return nil
	}
	o := notify.Options{
		Callers: h.reach(b.tenant.Telling.Inside), Own: h.reach(b.tenant.Inside), Secret: b.tenant.Telling.Secret, Made: h.Notify.Made,
		Standing: standing,
	}
	if tried, app := h.Notify.Tried, b.tenant.Name; tried != nil {
		o.Tried = func(outcome string) { tried(app, outcome) }
	}
	return notify.NewDesk(b.tenant.ID, h.Keys, o)
}

// reach is how far what is sent goes, private networks included or not.
func (h House) reach(inside bool) notify.Reach {
	if inside {
		return notify.Reach{Client: h.Inside, Inside: true}
	}
	return notify.Reach{Client: h.Outside}
}

// standing makes the addresses that the configuration has told of agents' tasks, by agent.
func (b *builder) standing() map[string][]*notify.Standing {
	all := map[string][]*notify.Standing{}
	for _, name := range b.cfg.AgentNames() {
		for i, n := range b.cfg.Agents[name].Notifications {
			if n == nil || !n.Enabled {
				continue
			}
			s, err := standing(n, b.tenant.Inside)
			b.wrong(fmt.Sprintf("agents.%s.notifications[%d]", name, i), err)
			all[name] = append(all[name], s)
		}
	}
	return all
}

func standing(n *config.Notification, inside bool) (*notify.Standing, error) {
	s := &notify.Standing{
		ID: n.ID, URL: n.URL, Header: n.Headers, Events: n.Events,
		Tries: int64(n.Retry.MaxAttempts), First: n.Retry.InitialDelay, Longest: n.Retry.MaxDelay,
	}
	err := notify.CheckURL(n.URL, inside)
	if err != nil || n.Payload == nil || n.Payload.Template == "" {
		return s, err
	}
	t, err := trigger.ParseTemplate(n.Payload.Template)
	if err != nil {
		return nil, agentsvc.Invalid("payload.template", "%.240v", err)
	}
	s.Body = func(n notify.Notice) ([]byte, error) {
		text, err := t.Text(n)
		return []byte(text), err
	}
	if _, err := s.Body(notify.Notice{Type: notify.TaskCompleted, Status: string(agentsvc.Completed)}); err != nil {
		return nil, agentsvc.Invalid("payload.template", "makes no body: %.200v", err)
	}
	return s, nil
}

// notifications tells which of them tell of an agent's task, and that one is about to begin.
func (h House) notifications(standing map[string][]*notify.Standing) func(agent string) []string {
	if h.Notify == nil || len(standing) == 0 {
		return nil
	}
	ids := map[string][]string{}
	for agent, all := range standing {
		for _, s := range all {
			ids[agent] = append(ids[agent], s.ID)
		}
	}
	return func(agent string) []string {
		if len(ids[agent]) > 0 && h.Notify.Made != nil {
			h.Notify.Made()
		}
		return ids[agent]
	}
}
