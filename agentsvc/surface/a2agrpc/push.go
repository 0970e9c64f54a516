package a2agrpc

import (
	"context"

	spec "github.com/a2aproject/a2a-go/v2/a2a"

	"stoa/agentsvc/surface/a2a"
)

// pushes are the calls about push notification configs of an agent's tasks.
func (c *call) pushes(agent string) a2a.Pushes {
	return a2a.Pushes{Visit: c.v, Agent: agent, Version: c.version, Invalid: c.invalid}
}

// pushing carries out a call about push notification configs of the agent that the call is for.
func pushing[T any](ctx context.Context, do func(a2a.Pushes) (T, error)) (answer T, err error) {
	c := callOf(ctx)
	agent, err := c.agent()
	if err == nil {
		answer, err = do(c.pushes(agent))
	}
	if err != nil {
		return answer, c.fail(err)
	}
	return answer, nil
}

// CreateTaskPushConfig has an address told of a task.
func (h *handler) CreateTaskPushConfig(ctx context.Context, req *spec.PushConfig) (*spec.PushConfig, error) {
	return pushing(ctx, func(p a2a.Pushes) (*spec.PushConfig, error) { return p.Set(ctx, req) })
}

// GetTaskPushConfig answers with a config of a task.
func (h *handler) GetTaskPushConfig(ctx context.Context, req *spec.GetTaskPushConfigRequest) (*spec.PushConfig, error) {
	return pushing(ctx, func(p a2a.Pushes) (*spec.PushConfig, error) { return p.Get(ctx, req.TaskID, req.ID) })
}

// ListTaskPushConfigs answers with all configs of a task.
func (h *handler) ListTaskPushConfigs(ctx context.Context, req *spec.ListTaskPushConfigRequest) (*spec.ListTaskPushConfigResponse, error) {
	return pushing(ctx, func(p a2a.Pushes) (*spec.ListTaskPushConfigResponse, error) {
		all, err := p.List(ctx, req.TaskID)
		return &spec.ListTaskPushConfigResponse{Configs: all}, err
	})
}

// DeleteTaskPushConfig ends a config.
func (h *handler) DeleteTaskPushConfig(ctx context.Context, req *spec.DeleteTaskPushConfigRequest) error {
	_, err := pushing(ctx, func(p a2a.Pushes) (struct{}, error) { return struct{}{}, p.Drop(ctx, req.TaskID, req.ID) })
	return err
}
