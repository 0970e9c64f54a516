package app

import (
	"fmt"

	"stoa/agentsvc"
	"stoa/agentsvc/config"
	"stoa/agentsvc/notify"
	"stoa/agentsvc/trigger"
)

// NotifyOptions is what a process that has addresses outside told of tasks wants to know.
type NotifyOptions struct {
	PushEnabled bool                      // callers may have addresses of theirs told
	OnQueued    func()                    // called when somebody is about to be told of another task
	OnAttempt   func(app, outcome string) // told of each attempt; may be nil
}

// NotificationSettings is how addresses outside are told.
type NotificationSettings struct {
	Secret         []byte // signs what they are told; nil = nothing does
	PrivateNetwork bool   // those that the app's callers choose may be private ones
}

// Notifier sends what addresses outside are told of the app's tasks; nil where none are.
func (a *App) Notifier() *notify.Notifier { return a.notifier }

// PushEnabled reports whether callers may have addresses of theirs told.
func (a *App) PushEnabled() bool { return a.pushEnabled }

// newNotifier makes it.
func (b *builder) newNotifier(h Dependencies, standing map[string][]*notify.StandingReceiver) *notify.Notifier {
	if h.Notifications == nil || h.Keys == nil {
		return nil
	}
	o := notify.Options{
		CallerEgress: h.notifyReach(b.tenant.Notifications.PrivateNetwork), AppEgress: h.notifyReach(b.tenant.PrivateNetwork), Secret: b.tenant.Notifications.Secret, OnReceiverCreated: h.Notifications.OnQueued,
		StandingReceivers: standing,
	}
	if onAttempt, app := h.Notifications.OnAttempt, b.tenant.Name; onAttempt != nil {
		o.OnAttempt = func(outcome string) { onAttempt(app, outcome) }
	}
	return notify.NewNotifier(b.tenant.ID, h.Keys, o)
}

// notifyReach is how far what is sent goes, private networks included or not.
func (h Dependencies) notifyReach(privateNetwork bool) notify.Egress {
	if privateNetwork {
		return notify.Egress{Client: h.PrivateEgress, AllowPrivate: true}
	}
	return notify.Egress{Client: h.PublicEgress}
}

// newStandingNotifications makes the addresses that the configuration has told of agents' tasks, by agent.
func (b *builder) newStandingNotifications() map[string][]*notify.StandingReceiver {
	all := map[string][]*notify.StandingReceiver{}
	for _, name := range b.cfg.AgentNames() {
		for i, n := range b.cfg.Agents[name].Notifications {
			if n == nil || !n.Enabled {
				continue
			}
			s, err := newStanding(n, b.tenant.PrivateNetwork)
			b.addProblem(fmt.Sprintf("agents.%s.notifications[%d]", name, i), err)
			all[name] = append(all[name], s)
		}
	}
	return all
}

func newStanding(n *config.Notification, privateNetwork bool) (*notify.StandingReceiver, error) {
	s := &notify.StandingReceiver{
		ID: n.ID, URL: n.URL, Header: n.Headers, Events: n.Events,
		MaxAttempts: int64(n.Retry.MaxAttempts), InitialBackoff: n.Retry.InitialDelay, MaxBackoff: n.Retry.MaxDelay,
	}
	err := notify.CheckURL(n.URL, privateNetwork)
	if err != nil || n.Payload == nil || n.Payload.Template == "" {
		return s, err
	}
	t, err := trigger.ParseTemplate(n.Payload.Template)
	if err != nil {
		return nil, agentsvc.NewInvalidError("payload.template", "%.240v", err)
	}
	s.EncodeBody = func(n notify.Notice) ([]byte, error) {
		text, err := t.RenderText(n)
		return []byte(text), err
	}
	if _, err := s.EncodeBody(notify.Notice{Type: notify.TaskCompleted, Status: string(agentsvc.Completed)}); err != nil {
		return nil, agentsvc.NewInvalidError("payload.template", "makes no body: %.200v", err)
	}
	return s, nil
}

// notificationIDs tells which of them tell of an agent's task, and that one is about to begin.
func (h Dependencies) notificationIDs(standing map[string][]*notify.StandingReceiver) func(agent string) []string {
	if h.Notifications == nil || len(standing) == 0 {
		return nil
	}
	ids := map[string][]string{}
	for agent, all := range standing {
		for _, s := range all {
			ids[agent] = append(ids[agent], s.ID)
		}
	}
	return func(agent string) []string {
		if len(ids[agent]) > 0 && h.Notifications.OnQueued != nil {
			h.Notifications.OnQueued()
		}
		return ids[agent]
	}
}
