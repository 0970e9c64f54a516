package tenancy

import "context"

// NewMaintenanceRound returns a function that performs the steps of [Service.Run] once, as its next round would.
func (s *Service) NewMaintenanceRound() func(context.Context) {
	steps := s.maintenance.newSteps()
	return func(ctx context.Context) {
		for i := range steps {
			steps[i].perform(ctx, s.store.log)
		}
	}
}
