package runtime

import (
	"context"
	"errors"
	"fmt"

	"stoa/agentsvc"
	"stoa/agentsvc/config"
	"stoa/agentsvc/notify"
	"stoa/agentsvc/trigger"
)

// NotifyOptions are a process's settings of outgoing notifications.
type NotifyOptions struct {
	// PushEnabled allows callers to register receivers of their own.
	PushEnabled bool
	// OnQueued is called when a task with receivers is about to begin, so that the dispatcher looks for it soon.
	OnQueued func()
	// OnAttempt is called for each delivery attempt, with its outcome; it may be nil.
	OnAttempt func(app, outcome string)
}

// NotificationSettings are an app's settings of outgoing notifications.
type NotificationSettings struct {
	// Secret signs the requests; nil means that they are unsigned.
	Secret []byte
	// PrivateNetwork allows private addresses for receivers that callers register.
	PrivateNetwork bool
}

// Notifier returns what composes and sends the app's notifications; nil if there are none.
func (rt *Runtime) Notifier() *notify.Notifier { return rt.notifier }

// PushEnabled reports whether callers may register receivers of their own.
func (rt *Runtime) PushEnabled() bool { return rt.pushEnabled }

// newNotifier returns the app's notifier, nil if the process sends no notifications or has no keys to seal addresses
// with.
func (b *build) newNotifier(h Dependencies, standing map[string][]*notify.StandingReceiver) *notify.Notifier {
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

// notifyReach returns the client for notifications, with or without access to private networks.
func (d Dependencies) notifyReach(privateNetwork bool) notify.Egress {
	if privateNetwork {
		return notify.Egress{Client: d.PrivateEgress, AllowPrivate: true}
	}
	return notify.Egress{Client: d.PublicEgress}
}

// newStandingNotifications returns the receivers that the configuration has for all tasks of an agent, by agent.
func (b *build) newStandingNotifications() map[string][]*notify.StandingReceiver {
	all := map[string][]*notify.StandingReceiver{}
	for _, name := range b.cfg.AgentNames() {
		for i, n := range b.cfg.Agents[name].Notifications {
			if n == nil || !n.Enabled {
				continue
			}
			s, err := newStanding(n, b.tenant)
			b.addProblem(fmt.Sprintf("agents.%s.notifications[%d]", name, i), err)
			all[name] = append(all[name], s)
		}
	}
	return all
}

// newStanding builds one of them. The template is tried with a sample notice, so that a mistake is a problem of the
// configuration.
func newStanding(n *config.Notification, t Tenant) (*notify.StandingReceiver, error) {
	s := &notify.StandingReceiver{
		ID: n.ID, URL: n.URL, Header: n.Headers, Events: n.Events,
		MaxAttempts: int64(n.Retry.MaxAttempts), InitialBackoff: n.Retry.InitialDelay, MaxBackoff: n.Retry.MaxDelay,
	}
	templateErr := setTemplate(s, n.Payload, t)
	// Two errors are two problems of the configuration.
	return s, errors.Join(notify.CheckURL(n.URL, t.PrivateNetwork), templateErr)
}

// setTemplate sets what encodes the body of s, if the configuration has a template for it.
func setTemplate(s *notify.StandingReceiver, p *config.Payload, t Tenant) error {
	if p == nil || p.Template == "" {
		return nil
	}
	tpl, err := trigger.ParseTemplate(string(t.ID), p.Template)
	if err != nil {
		return agentsvc.NewInvalidError("payload.template", "%.240v", err)
	}
	s.EncodeBody = func(ctx context.Context, n notify.Notice) ([]byte, error) {
		text, err := tpl.RenderText(ctx, n)
		return []byte(text), err
	}
	if _, err := s.EncodeBody(context.Background(), notify.Notice{Type: notify.TaskCompleted, Status: string(agentsvc.Completed)}); err != nil {
		return agentsvc.NewInvalidError("payload.template", "cannot be rendered: %.200v", err)
	}
	return nil
}

// notificationIDs returns the function that the task service calls for a new task: it returns the ids of the agent's
// standing receivers, and wakes the dispatcher if there are any.
func (d Dependencies) notificationIDs(standing map[string][]*notify.StandingReceiver) func(agent string) []string {
	if d.Notifications == nil || len(standing) == 0 {
		return nil
	}
	ids := map[string][]string{}
	for agent, all := range standing {
		for _, s := range all {
			ids[agent] = append(ids[agent], s.ID)
		}
	}
	return func(agent string) []string {
		if len(ids[agent]) > 0 && d.Notifications.OnQueued != nil {
			d.Notifications.OnQueued()
		}
		return ids[agent]
	}
}
