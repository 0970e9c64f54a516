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

// Pushes are the calls about push notification configs of an agent's tasks, in the types of the protocol's library. They reach
// the caller's own tasks alone. What a config holds that is secret goes in and never out.
type Pushes struct {
	Visit   *surface.Visit
	Agent   string
	Version string
	Invalid error // what is wrong with the call as it was read, told to those who may make it
}

// Set has an address told of what happens to a task from now on. A config without an id gets one: that of its task, where
// version 0.3 is spoken, so that it takes the place of the one before.
func (p Pushes) Set(ctx context.Context, c *spec.PushConfig) (*spec.PushConfig, error) {
	reach, err := p.enter(ctx, c.TaskID)
	if err != nil {
		return nil, err
	}
	r, err := p.Receiver(c)
	if err != nil {
		return nil, err
	}
	r.Task = agentsvc.TaskID(c.TaskID)
	kept, err := p.Visit.Tasks().SetReceiver(ctx, reach, *r)
	if err != nil {
		return nil, err
	}
	return p.shown(kept)
}

// Get returns a config of a task, of version 0.3 without an id the one that was set without one.
func (p Pushes) Get(ctx context.Context, id spec.TaskID, config string) (*spec.PushConfig, error) {
	all, err := p.List(ctx, id)
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

// List returns the configs of a task. There are few: none is on another page.
func (p Pushes) List(ctx context.Context, id spec.TaskID) ([]*spec.PushConfig, error) {
	reach, err := p.enter(ctx, id)
	if err != nil {
		return nil, err
	}
	kept, err := p.Visit.Tasks().Receivers(ctx, reach, agentsvc.TaskID(id))
	if err != nil {
		return nil, err
	}
	all := make([]*spec.PushConfig, 0, len(kept))
	for _, r := range kept {
		if _, ours := Forms[r.Form]; !ours {
			continue
		}
		c, err := p.shown(r)
		if err != nil {
			return nil, err
		}
		all = append(all, c)
	}
	return all, nil
}

// Drop ends a config. To do so twice does no harm.
func (p Pushes) Drop(ctx context.Context, id spec.TaskID, config string) error {
	reach, err := p.enter(ctx, id)
	if err != nil {
		return err
	}
	if err := surface.CheckID("id", config); err != nil {
		return err
	}
	return p.Visit.Tasks().DropReceiver(ctx, reach, agentsvc.TaskID(id), config)
}

// enter asks whether the caller may, whether there are push notifications at all, and whether the task has an id.
func (p Pushes) enter(ctx context.Context, id spec.TaskID) (task.Reach, error) {
	reach, err := p.Visit.Own(ctx, p.Agent)
	if err == nil {
		_, err = p.Visit.Desk()
	}
	if err = cmp.Or(err, p.Invalid); err == nil && id == "" {
		err = agentsvc.Invalid("taskId", "is missing: the id of a task")
	}
	return reach, cmp.Or(err, surface.CheckID("taskId", string(id)))
}

// Receiver returns a config as the receiver of a task of the caller's. It returns [surface.ErrNoPush] where nobody is told.
func (p Pushes) Receiver(c *spec.PushConfig) (*store.Receiver, error) {
	id, form := c.ID, Form03
	if p.Version == surface.A2A10 {
		id, form = cmp.Or(id, agentsvc.NewID()), Form10
	}
	a := notify.Address{URL: c.URL, Token: c.Token}
	if c.Auth != nil {
		a.Scheme, a.Credentials = c.Auth.Scheme, c.Auth.Credentials
	}
	return p.Visit.Receiver(id, form, a)
}

// shown returns a receiver as its owner sees it.
func (p Pushes) shown(r store.Receiver) (*spec.PushConfig, error) {
	d, err := p.Visit.Desk()
	if err != nil {
		return nil, err
	}
	a, err := d.Address(p.Visit.Principal.Owner(), r)
	if err != nil {
		return nil, err
	}
	c := &spec.PushConfig{TaskID: spec.TaskID(r.Task), ID: r.ID, URL: a.URL}
	if a.Scheme != "" {
		c.Auth = &spec.PushAuthInfo{Scheme: a.Scheme}
	}
	return c, nil
}

// inline reads a config that comes with a message.
func (p Pushes) inline(raw json.RawMessage) (*store.Receiver, error) {
	var in pushConfig
	if err := json.Unmarshal(raw, &in); err != nil {
		return nil, agentsvc.Invalid("configuration", "the push notification config must be an object with a url")
	}
	return p.Receiver(in.read("", in.ID))
}

// read returns a as the config of a task, under an id.
func (a pushAddress) read(task spec.TaskID, id string) *spec.PushConfig {
	c := &spec.PushConfig{TaskID: task, ID: id, URL: a.URL, Token: a.Token}
	if auth := a.Authentication; auth != nil {
		c.Auth = &spec.PushAuthInfo{Scheme: cmp.Or(auth.Scheme, known(auth.Schemes)), Credentials: auth.Credentials}
	}
	return c
}

// known returns the first of some schemes that is known here, or where none is the first of all.
func known(schemes []string) string {
	for _, s := range schemes {
		if strings.EqualFold(s, "bearer") || strings.EqualFold(s, "basic") {
			return s
		}
	}
	return strings.Join(schemes[:min(len(schemes), 1)], "")
}

// push returns the config that params hold and which task it belongs to. Where they name a task beside an id, that is the
// config's.
func (p *params) push() (*spec.PushConfig, error) {
	id, wrong := p.id("must be a text")
	task, own := cmp.Or(p.path.task, p.TaskID, p.TaskIDSnake), cmp.Or(p.path.push, p.PushID, p.PushIDSnake)
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
	return nested.read(spec.TaskID(task), cmp.Or(own, nested.ID, id)), wrong
}

// pushing returns the calls about configs as c makes them, and the config that it names.
func (c *call) pushing() (Pushes, *spec.PushConfig) {
	in, wrong := c.push()
	return Pushes{c.v, c.agent, c.as.version, wrong}, in
}

// setPush has an address told of a task.
func setPush(c *call) (any, error) {
	p, in := c.pushing()
	kept, err := p.Set(c.ctx(), in)
	if err != nil {
		return nil, err
	}
	return c.as.push(kept)
}

// getPush answers with a config.
func getPush(c *call) (any, error) {
	p, in := c.pushing()
	kept, err := p.Get(c.ctx(), in.TaskID, in.ID)
	if err != nil {
		return nil, err
	}
	return c.as.push(kept)
}

// listPushes answers with all configs of a task.
func listPushes(c *call) (any, error) {
	p, in := c.pushing()
	all, err := p.List(c.ctx(), in.TaskID)
	if err != nil {
		return nil, err
	}
	return c.as.pushes(all)
}

// dropPush ends a config.
func dropPush(c *call) (any, error) {
	p, in := c.pushing()
	return c.as.empty, p.Drop(c.ctx(), in.TaskID, in.ID)
}
