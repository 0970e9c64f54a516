package a2agrpc

import (
	"context"

	spec "github.com/a2aproject/a2a-go/v2/a2a"

	"stoa/agentsvc/surface/a2a"
)

// newPushService returns the push notification methods for an agent of this call; package a2a implements them.
func (c *call) newPushService(agent string) a2a.PushService {
	return a2a.PushService{Request: c.request, Agent: agent, Version: c.version, Invalid: c.invalid}
}

// callPushService resolves the agent of the call, calls do and records its error.
func callPushService[T any](ctx context.Context, do func(a2a.PushService) (T, error)) (answer T, err error) {
	c := callFrom(ctx)
	agent, err := c.resolveAgent()
	if err == nil {
		answer, err = do(c.newPushService(agent))
	}
	if err != nil {
		return answer, c.recordFailure(err)
	}
	return answer, nil
}

// CreateTaskPushConfig stores a config for a task and returns it.
func (h *handler) CreateTaskPushConfig(ctx context.Context, req *spec.PushConfig) (*spec.PushConfig, error) {
	return callPushService(ctx, func(p a2a.PushService) (*spec.PushConfig, error) { return p.SetConfig(ctx, req) })
}

// GetTaskPushConfig returns one config of a task.
func (h *handler) GetTaskPushConfig(ctx context.Context, req *spec.GetTaskPushConfigRequest) (*spec.PushConfig, error) {
	return callPushService(ctx, func(p a2a.PushService) (*spec.PushConfig, error) { return p.GetConfig(ctx, req.TaskID, req.ID) })
}

// ListTaskPushConfigs returns all configs of a task.
func (h *handler) ListTaskPushConfigs(ctx context.Context, req *spec.ListTaskPushConfigRequest) (*spec.ListTaskPushConfigResponse, error) {
	return callPushService(ctx, func(p a2a.PushService) (*spec.ListTaskPushConfigResponse, error) {
		all, err := p.ListConfigs(ctx, req.TaskID)
		return &spec.ListTaskPushConfigResponse{Configs: all}, err
	})
}

// DeleteTaskPushConfig removes a config; a missing one is no error.
func (h *handler) DeleteTaskPushConfig(ctx context.Context, req *spec.DeleteTaskPushConfigRequest) error {
	_, err := callPushService(ctx, func(p a2a.PushService) (struct{}, error) { return struct{}{}, p.DeleteConfig(ctx, req.TaskID, req.ID) })
	return err
}
