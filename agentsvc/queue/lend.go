package queue

import "context"

// lendSlot starts one run of a tenant that has no run here, when all workers are busy and none became free for
// [Options].LendAfter. So long runs, of however many tenants, cannot block another tenant. The run occupies a
// background slot, of which no tenant can have all. The claim loop calls it once per claimInterval.
func (c *claimer) lendSlot(ctx context.Context) error {
	if c.options.AcceptOnly || !c.slots.isStuck() || !c.executor.beginWork() {
		return nil
	}
	defer c.executor.endWork()
	runs, err := c.ring.claimOneRun(ctx, c.slots.canBorrow)
	if c.executor.work.isStopping() {
		return err // Drain returns the run
	}
	for _, run := range runs {
		c.executor.startClaimed(run, borrowedSlot)
	}
	return err
}
