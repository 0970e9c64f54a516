package runtime

import (
	"context"
	"errors"
	"fmt"
	"time"

	"stoa/agentsvc"
	"stoa/agentsvc/config"
	"stoa/agentsvc/task"
	"stoa/agentsvc/trigger"
)

// Schedule is a schedule of an agent, with the message that starts it.
type Schedule struct {
	Cron *trigger.Cron
	Zone *time.Location
	// Input is the text of the message; "" means one with the time.
	Input string
}

// Webhook is an endpoint by which another service starts an agent.
type Webhook struct {
	Agent   string
	Path    string
	Methods []string
	// Signature verifies deliveries, Input makes the message from a delivery's body.
	Signature *trigger.Signature
	Input     *trigger.Input
	// ResultTimeout bounds the wait for the result in the response; 0 means that the response does not wait.
	ResultTimeout time.Duration
	// Callback is where the result is posted; nil for nowhere.
	Callback *trigger.Callback
}

// triggerSet is the triggers of an app.
type triggerSet struct {
	// schedules are by agent, webhooks by path.
	schedules map[string]*Schedule
	webhooks  map[string]*Webhook
}

// newTriggers builds the enabled triggers.
func (b *build) newTriggers() triggerSet {
	out := triggerSet{map[string]*Schedule{}, map[string]*Webhook{}}
	for _, name := range b.cfg.AgentNames() {
		t := b.cfg.Agents[name].Trigger
		if t == nil || !t.Enabled {
			continue
		}
		path := "agents." + name + ".trigger"
		switch t.Type {
		case "schedule":
			c, err := trigger.ParseCron(t.Cron, t.Timezone)
			b.addProblem(path, err)
			if err == nil {
				out.schedules[name] = &Schedule{c, c.Location(), t.Input}
			}
		case "webhook":
			signature, err := trigger.NewSignature(t.Secret, t.SignatureHeader, t.TimestampHeader)
			b.addProblem(path, err)
			w, err := newWebhook(b.appID(), name, t)
			b.addProblem(path+".webhook_input", err)
			if w != nil {
				w.Signature = signature
			}
			out.webhooks[t.Path] = w
		}
	}
	return out
}

// newWebhook builds a webhook of app without its signature. It returns one even if its input has a problem.
func newWebhook(app, agent string, t *config.Trigger) (*Webhook, error) {
	w := &Webhook{Agent: agent, Path: t.Path, Methods: t.Methods}
	switch t.Response.Mode {
	case "sync":
		w.ResultTimeout = t.Response.Timeout
	case "callback":
		w.Callback = &trigger.Callback{Field: t.Response.CallbackField, Hosts: t.Response.CallbackHosts}
	}
	var source string
	var fields []trigger.Field
	if in := t.WebhookInput; in != nil {
		source = in.Template
		for _, f := range in.ExtractFields {
			fields = append(fields, trigger.Field{Path: f.Path, As: f.Name(), Required: f.Required})
		}
	}
	var err error
	w.Input, err = trigger.NewInput(app, t.Input, source, fields)
	return w, err
}

// Schedules returns the schedules of the app by agent, for the list of its triggers. What the [trigger.Scheduler] stores
// is read from the configuration without a build ([trigger.ConfiguredCrons]).
func (rt *Runtime) Schedules() map[string]*Schedule { return rt.triggers.schedules }

// Webhooks returns the webhooks of the app by path.
func (rt *Runtime) Webhooks() map[string]*Webhook { return rt.triggers.webhooks }

// NewSubmission returns the submission that starts the schedule's agent for a time. The message's metadata name
// origin as what started it.
func (s *Schedule) NewSubmission(agent, origin string, at time.Time) task.Submission {
	text, input := at.In(s.Zone).Format(time.RFC3339), s.Input
	if input == "" {
		input = "It is " + text + "."
	}
	m := agentsvc.Message{Parts: []agentsvc.Part{agentsvc.TextPart(input)}, Metadata: map[string]any{"trigger": origin, "scheduled_at": text}}
	return task.Submission{Agent: agent, Owner: trigger.TaskOwner(agent), Message: m, Background: true}
}

// StartTick starts an agent for a tick of its schedule. The key of the submission follows from the tick's time, so a
// repetition finds the same task. If the agent no longer has this schedule, because another revision is current, it
// returns [trigger.ErrNoSchedule]. If a limit, a budget, the storage limit or the agent's input rules refuse the task,
// it returns [trigger.ErrTickRefused].
func (rt *Runtime) StartTick(ctx context.Context, t trigger.Tick) (agentsvc.TaskID, error) {
	s := rt.triggers.schedules[t.Agent]
	if s == nil || s.Cron.String() != t.Spec {
		return "", trigger.ErrNoSchedule
	}
	owner, key := trigger.TaskOwner(t.Agent), trigger.TickKey(t.At)
	// The task may exist from an earlier attempt. It must then not be counted again.
	if id, err := rt.tasks.Reader.FindByKey(ctx, owner, t.Agent, key); !errors.Is(err, agentsvc.ErrNotFound) {
		return id, err
	}
	sub := s.NewSubmission(t.Agent, "schedule", t.At)
	sub.Key = key
	_, release, err := rt.AdmitCall(ctx, &sub)
	if err == nil {
		defer release()
		var opened agentsvc.Task
		if opened, err = rt.tasks.Messages.Submit(ctx, sub); err == nil {
			return opened.ID, nil
		}
	}
	if errors.Is(err, agentsvc.CodeExhausted) || errors.Is(err, agentsvc.CodeInvalid) {
		err = fmt.Errorf("%w: %w", trigger.ErrTickRefused, err)
	}
	return "", err
}
