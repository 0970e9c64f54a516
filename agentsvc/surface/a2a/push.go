package a2a

import (
	"cmp"
	"context"
	"encoding/json"
	"slices"
	"strings"

	spec "github.com/a2aproject/a2a-go/v2/a2a"

	"stoa/agentsvc"
	"stoa/agentsvc/notify"
	"stoa/agentsvc/store/receiver"
	"stoa/agentsvc/surface"
	"stoa/agentsvc/surface/agentcard"
	"stoa/agentsvc/surface/apierror"
	"stoa/agentsvc/surface/decode"
	"stoa/agentsvc/task"
	"stoa/authz"
)

// PushService implements the methods about push notification configs of an agent's tasks, in the types of the
// protocol's library, for this package and for a2agrpc. It acts on the caller's own tasks only, also for callers
// that may read the tasks of others: where a task's notifications go is decided by its owner. Tokens and
// credentials of a config are write-only: no method returns them.
//
// A config is stored as a [receiver.Receiver]; package notify delivers to it in one of the [Formats].
type PushService struct {
	Request *surface.Request
	Agent   string // the agent whose tasks are meant
	Version string // agentcard.A2A10 or agentcard.A2A03; it selects the format of the notifications
	// Invalid is the decoding error of the request, or nil. The methods return it only after the caller is
	// authorized.
	Invalid error
}

// SetConfig stores a config, which receives the events of its task from now on, and returns it as stored. A config
// without an ID gets a new one in version 1.0, and the ID of its task in version 0.3, where it so replaces the
// config that was set without an ID before.
func (p PushService) SetConfig(ctx context.Context, c *spec.PushConfig) (*spec.PushConfig, error) {
	visibility, err := p.authorizeTask(ctx, c.TaskID)
	if err != nil {
		return nil, err
	}
	r, err := p.NewReceiver(c)
	if err != nil {
		return nil, err
	}
	r.Task = agentsvc.TaskID(c.TaskID)
	stored, err := p.Request.Tasks.Receivers.Set(ctx, visibility, p.Request.Origin(), *r)
	if err != nil {
		return nil, err
	}
	return p.toPublicConfig(stored)
}

// GetConfig returns a config of a task, or [agentsvc.ErrNotFound]. In version 0.3 an empty ID means the config that
// was set without one.
func (p PushService) GetConfig(ctx context.Context, id spec.TaskID, config string) (*spec.PushConfig, error) {
	all, err := p.ListConfigs(ctx, id)
	if err != nil {
		return nil, err
	}
	if config == "" && p.Version == agentcard.A2A03 {
		config = string(id)
	}
	i := slices.IndexFunc(all, func(c *spec.PushConfig) bool { return c.ID == config })
	if i < 0 {
		return nil, agentsvc.ErrNotFound
	}
	return all[i], nil
}

// ListConfigs returns all configs of a task on one page. The number of configs of a task is bounded, so there is no
// paging.
func (p PushService) ListConfigs(ctx context.Context, id spec.TaskID) ([]*spec.PushConfig, error) {
	visibility, err := p.authorizeTask(ctx, id)
	if err != nil {
		return nil, err
	}
	stored, err := p.Request.Tasks.Receivers.List(ctx, visibility, agentsvc.TaskID(id))
	if err != nil {
		return nil, err
	}
	all := make([]*spec.PushConfig, 0, len(stored))
	for _, r := range stored {
		// Receivers of other formats, such as the callback of a webhook trigger, are not configs of this protocol.
		if _, ours := Formats[r.Format]; !ours {
			continue
		}
		c, err := p.toPublicConfig(r)
		if err != nil {
			return nil, err
		}
		all = append(all, c)
	}
	return all, nil
}

// DeleteConfig removes a config. Removing one that does not exist is no error, so that a client may repeat the
// call.
func (p PushService) DeleteConfig(ctx context.Context, id spec.TaskID, config string) error {
	visibility, err := p.authorizeTask(ctx, id)
	if err != nil {
		return err
	}
	if err := decode.CheckID("id", config); err != nil {
		return err
	}
	return p.Request.Tasks.Receivers.Drop(ctx, visibility, p.Request.Origin(), agentsvc.TaskID(id), config)
}

// authorizeTask authorizes the caller for its own tasks of p.Agent and checks the task ID. Its order is the
// contract: permission first, then [apierror.ErrNoPush] where push notifications are off, then p.Invalid, then the
// ID.
func (p PushService) authorizeTask(ctx context.Context, id spec.TaskID) (task.Visibility, error) {
	visibility, err := p.resolveVisibility(ctx)
	if err == nil {
		_, err = p.notifier()
	}
	if err = cmp.Or(err, p.Invalid); err == nil && id == "" {
		err = agentsvc.NewInvalidError("taskId", "is missing: the id of a task")
	}
	return visibility, cmp.Or(err, decode.CheckID("taskId", string(id)))
}

// NewReceiver returns a config as a receiver of the caller's, with its secrets encrypted and bound to the caller as
// owner. It returns [apierror.ErrNoPush] where push notifications are off, or an error with [agentsvc.CodeInvalid] for an
// address that is not allowed.
func (p PushService) NewReceiver(c *spec.PushConfig) (*receiver.Receiver, error) {
	id, format := c.ID, Format03
	if p.Version == agentcard.A2A10 {
		id, format = cmp.Or(id, agentsvc.NewID()), Format10
	}
	a := notify.Address{URL: c.URL, Token: c.Token}
	if c.Auth != nil {
		a.Scheme, a.Credentials = c.Auth.Scheme, c.Auth.Credentials
	}
	d, err := p.notifier()
	if err != nil {
		return nil, err
	}
	if err := decode.CheckID("id", id); err != nil {
		return nil, err
	}
	r, err := d.NewReceiver(p.Request.Principal.Owner(), id, format, a)
	if err != nil {
		return nil, err
	}
	return &r, nil
}

// toPublicConfig returns a receiver as its owner may read it: the URL and the name of the scheme, without token and
// credentials.
func (p PushService) toPublicConfig(r receiver.Receiver) (*spec.PushConfig, error) {
	d, err := p.notifier()
	if err != nil {
		return nil, err
	}
	a, err := d.OpenAddress(p.Request.Principal.Owner(), r)
	if err != nil {
		return nil, err
	}
	c := &spec.PushConfig{TaskID: spec.TaskID(r.Task), ID: r.ID, URL: a.URL}
	if a.Scheme != "" {
		c.Auth = &spec.PushAuthInfo{Scheme: a.Scheme}
	}
	return c, nil
}

// decodeInline returns the receiver of a config that comes with a message. The task service sets its task, since
// the message may start a new one.
func (p PushService) decodeInline(raw json.RawMessage) (*receiver.Receiver, error) {
	var in pushConfig
	if err := json.Unmarshal(raw, &in); err != nil {
		return nil, agentsvc.NewInvalidError("configuration", "the push notification config must be an object with a url")
	}
	return p.NewReceiver(in.toConfig("", in.ID))
}

// toConfig returns a as the config of a task under the given ID.
func (a pushAddress) toConfig(task spec.TaskID, id string) *spec.PushConfig {
	c := &spec.PushConfig{TaskID: task, ID: id, URL: a.URL, Token: a.Token}
	if auth := a.Authentication; auth != nil {
		c.Auth = &spec.PushAuthInfo{Scheme: cmp.Or(auth.Scheme, firstKnownScheme(auth.Schemes)), Credentials: auth.Credentials}
	}
	return c
}

// firstKnownScheme returns the first scheme that notifications can use (Bearer or Basic). If there is none it
// returns the first scheme as given, so that the validation error names it; "" for no schemes.
func firstKnownScheme(schemes []string) string {
	for _, s := range schemes {
		if strings.EqualFold(s, "bearer") || strings.EqualFold(s, "basic") {
			return s
		}
	}
	return strings.Join(schemes[:min(len(schemes), 1)], "")
}

// toPushConfig returns the push notification config of a request. Its task is named by the path, by taskId or, if
// neither is present, by id, which is the task's ID in version 0.3; otherwise id is that of the config. The error
// is about id only; the config is returned with it, so that the caller can be authorized first.
func (p *params) toPushConfig() (*spec.PushConfig, error) {
	id, wrong := p.decodeID("must be a text")
	task, own := cmp.Or(p.path.task, p.TaskID, p.TaskIDSnake), cmp.Or(p.path.config, p.PushID, p.PushIDSnake)
	if task == "" {
		task, id = id, ""
	}
	nested := cmp.Or(p.pushNested.Push, p.pushNested.PushSnake)
	if p.Config != nil {
		nested = cmp.Or(nested, p.Config.Push, p.Config.PushSnake)
	}
	if nested == nil {
		nested = &pushConfig{pushAddress: p.pushAddress}
	}
	return nested.toConfig(spec.TaskID(task), cmp.Or(own, nested.ID, id)), wrong
}

// preparePush returns the service for c and the config that c names. A decoding error is passed on as
// PushService.Invalid.
func (c *call) preparePush() (PushService, *spec.PushConfig) {
	in, wrong := c.toPushConfig()
	return PushService{c.request, c.agent, c.codec.version, wrong}, in
}

// handleSetPush answers CreateTaskPushNotificationConfig (0.3: set).
func handleSetPush(c *call) (any, error) {
	p, in := c.preparePush()
	stored, err := p.SetConfig(c.ctx(), in)
	if err != nil {
		return nil, err
	}
	return c.codec.encodePush(stored)
}

// handleGetPush answers GetTaskPushNotificationConfig.
func handleGetPush(c *call) (any, error) {
	p, in := c.preparePush()
	stored, err := p.GetConfig(c.ctx(), in.TaskID, in.ID)
	if err != nil {
		return nil, err
	}
	return c.codec.encodePush(stored)
}

// handleListPushes answers ListTaskPushNotificationConfigs.
func handleListPushes(c *call) (any, error) {
	p, in := c.preparePush()
	all, err := p.ListConfigs(c.ctx(), in.TaskID)
	if err != nil {
		return nil, err
	}
	return c.codec.encodePushList(all)
}

// handleDeletePush answers DeleteTaskPushNotificationConfig.
func handleDeletePush(c *call) (any, error) {
	p, in := c.preparePush()
	return c.codec.emptyResult, p.DeleteConfig(c.ctx(), in.TaskID, in.ID)
}

// notifier returns the app's notifier. It returns [apierror.ErrNoPush] if the app has no push notifications.
func (p PushService) notifier() (*notify.Notifier, error) {
	if agentcard.SupportsPush(p.Request) {
		return p.Request.Runtime.Notifier(), nil
	}
	return nil, apierror.ErrNoPush
}

// resolveVisibility returns the visibility of the caller's own tasks of p.Agent, which it must be allowed to call. A
// caller who may see all tasks of the app does not get them here: only the owner of a task manages its receivers.
func (p PushService) resolveVisibility(ctx context.Context) (task.Visibility, error) {
	if err := p.Request.AuthorizeAgent(ctx, authz.AgentsCall, p.Agent); err != nil {
		return task.Visibility{}, err
	}
	return p.Request.OwnVisibility(p.Agent), nil
}

// SetReceiver makes r, which may be nil, a receiver of notifications from the turn on that sub starts. A decision or a
// credential starts no turn: with r it is an error with [agentsvc.CodeInvalid].
func SetReceiver(sub *task.Submission, r *receiver.Receiver) error {
	if r != nil && len(sub.Decisions) > 0 {
		return agentsvc.NewInvalidError("configuration", "a push notification config does not go with a decision or a credential: set it by itself")
	}
	sub.Receiver = r
	return nil
}
