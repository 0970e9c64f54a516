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
	"stoa/agentsvc/store"
	"stoa/agentsvc/surface"
	"stoa/agentsvc/task"
)

// PushService are the calls about push notification configs of an agent's tasks, in the types of the protocol's library. They reach
// the caller's own tasks alone. What a config holds that is secret goes in and never out.
type PushService struct {
	Request *surface.Request
	Agent   string
	Version string
	Invalid error // what is wrong with the call as it was read, told to those who may make it
}

// SetConfig has an address told of what happens to a task from now on. A config without an id gets one: that of its task, where
// version 0.3 is spoken, so that it takes the place of the one before.
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
	stored, err := p.Request.Tasks().SetReceiver(ctx, visibility, *r)
	if err != nil {
		return nil, err
	}
	return p.toPublicConfig(stored)
}

// GetConfig returns a config of a task, of version 0.3 without an id the one that was set without one.
func (p PushService) GetConfig(ctx context.Context, id spec.TaskID, config string) (*spec.PushConfig, error) {
	all, err := p.ListConfigs(ctx, id)
	if err != nil {
		return nil, err
	}
	if config == "" && p.Version == surface.A2A03 {
		config = string(id)
	}
	i := slices.IndexFunc(all, func(c *spec.PushConfig) bool { return c.ID == config })
	if i < 0 {
		return nil, agentsvc.ErrNotFound
	}
	return all[i], nil
}

// ListConfigs returns the configs of a task. There are few: none is on another page.
func (p PushService) ListConfigs(ctx context.Context, id spec.TaskID) ([]*spec.PushConfig, error) {
	visibility, err := p.authorizeTask(ctx, id)
	if err != nil {
		return nil, err
	}
	stored, err := p.Request.Tasks().ListReceivers(ctx, visibility, agentsvc.TaskID(id))
	if err != nil {
		return nil, err
	}
	all := make([]*spec.PushConfig, 0, len(stored))
	for _, r := range stored {
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

// DeleteConfig ends a config. To do so twice does no harm.
func (p PushService) DeleteConfig(ctx context.Context, id spec.TaskID, config string) error {
	visibility, err := p.authorizeTask(ctx, id)
	if err != nil {
		return err
	}
	if err := surface.CheckID("id", config); err != nil {
		return err
	}
	return p.Request.Tasks().DropReceiver(ctx, visibility, agentsvc.TaskID(id), config)
}

// authorizeTask asks whether the caller may, whether there are push notifications at all, and whether the task has an id.
func (p PushService) authorizeTask(ctx context.Context, id spec.TaskID) (task.Visibility, error) {
	visibility, err := p.Request.ResolveOwnVisibility(ctx, p.Agent)
	if err == nil {
		_, err = p.Request.Notifier()
	}
	if err = cmp.Or(err, p.Invalid); err == nil && id == "" {
		err = agentsvc.NewInvalidError("taskId", "is missing: the id of a task")
	}
	return visibility, cmp.Or(err, surface.CheckID("taskId", string(id)))
}

// NewReceiver returns a config as the receiver of a task of the caller's. It returns [surface.ErrNoPush] where nobody is told.
func (p PushService) NewReceiver(c *spec.PushConfig) (*store.Receiver, error) {
	id, format := c.ID, Format03
	if p.Version == surface.A2A10 {
		id, format = cmp.Or(id, agentsvc.NewID()), Format10
	}
	a := notify.Address{URL: c.URL, Token: c.Token}
	if c.Auth != nil {
		a.Scheme, a.Credentials = c.Auth.Scheme, c.Auth.Credentials
	}
	return p.Request.NewReceiver(id, format, a)
}

// toPublicConfig returns a receiver as its owner sees it.
func (p PushService) toPublicConfig(r store.Receiver) (*spec.PushConfig, error) {
	d, err := p.Request.Notifier()
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

// decodeInline reads a config that comes with a message.
func (p PushService) decodeInline(raw json.RawMessage) (*store.Receiver, error) {
	var in pushConfig
	if err := json.Unmarshal(raw, &in); err != nil {
		return nil, agentsvc.NewInvalidError("configuration", "the push notification config must be an object with a url")
	}
	return p.NewReceiver(in.toConfig("", in.ID))
}

// toConfig returns a as the config of a task, under an id.
func (a pushAddress) toConfig(task spec.TaskID, id string) *spec.PushConfig {
	c := &spec.PushConfig{TaskID: task, ID: id, URL: a.URL, Token: a.Token}
	if auth := a.Authentication; auth != nil {
		c.Auth = &spec.PushAuthInfo{Scheme: cmp.Or(auth.Scheme, firstKnownScheme(auth.Schemes)), Credentials: auth.Credentials}
	}
	return c
}

// firstKnownScheme returns the first of some schemes that is known here, or where none is the first of all.
func firstKnownScheme(schemes []string) string {
	for _, s := range schemes {
		if strings.EqualFold(s, "bearer") || strings.EqualFold(s, "basic") {
			return s
		}
	}
	return strings.Join(schemes[:min(len(schemes), 1)], "")
}

// toPushConfig returns the config that params hold and which task it belongs to. Where they name a task beside an id, that is the
// config's.
func (p *params) toPushConfig() (*spec.PushConfig, error) {
	id, wrong := p.decodeID("must be a text")
	task, own := cmp.Or(p.path.task, p.TaskID, p.TaskIDSnake), cmp.Or(p.path.toPushConfig, p.PushID, p.PushIDSnake)
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

// preparePush returns the calls about configs as c makes them, and the config that it names.
func (c *call) preparePush() (PushService, *spec.PushConfig) {
	in, wrong := c.toPushConfig()
	return PushService{c.request, c.agent, c.codec.version, wrong}, in
}

// handleSetPush has an address told of a task.
func handleSetPush(c *call) (any, error) {
	p, in := c.preparePush()
	stored, err := p.SetConfig(c.ctx(), in)
	if err != nil {
		return nil, err
	}
	return c.codec.encodePush(stored)
}

// handleGetPush answers with a config.
func handleGetPush(c *call) (any, error) {
	p, in := c.preparePush()
	stored, err := p.GetConfig(c.ctx(), in.TaskID, in.ID)
	if err != nil {
		return nil, err
	}
	return c.codec.encodePush(stored)
}

// handleListPushes answers with all configs of a task.
func handleListPushes(c *call) (any, error) {
	p, in := c.preparePush()
	all, err := p.ListConfigs(c.ctx(), in.TaskID)
	if err != nil {
		return nil, err
	}
	return c.codec.encodePushList(all)
}

// handleDeletePush ends a config.
func handleDeletePush(c *call) (any, error) {
	p, in := c.preparePush()
	return c.codec.emptyResult, p.DeleteConfig(c.ctx(), in.TaskID, in.ID)
}
