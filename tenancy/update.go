package tenancy

import (
	"context"
	"maps"

	"stoa/tenancy/grant"
)

// Change is what [Service.Update] alters. What is nil stays as it is.
type Change struct {
	DisplayName *string
	Config      []byte            // values that an answer had masked keep what they stand for
	Secrets     map[string]string // added to those there are
	Grants      grant.List        // empty and not nil: none
	Plan        *string
	Limits      LimitsChange
	Auth        *Auth // the zero value takes it away
	Labels      map[string]string
	IfRevision  int64 // the revision that must be in force; 0 = whichever
}

// Update changes an app. With dryRun it only tells what would come of it. Another revision than c requires is
// [ErrPrecondition].
func (s *Service) Update(ctx context.Context, actor, name string, c Change, dryRun bool) (App, error) {
	return s.change(ctx, actor, "app.update", name, dryRun, func(e *edit) error {
		if c.IfRevision != 0 && c.IfRevision != e.app.Revision {
			return refuse(ErrPrecondition, "the app %s is at revision %d, not %d", name, e.app.Revision, c.IfRevision)
		}
		if err := e.apply(c, s.options.Guard); err != nil {
			return err
		}
		if err := s.reach(ctx, &e.app, &e.was.app); err != nil {
			return err
		}
		if !e.app.Grants.Equal(e.was.app.Grants) {
			if err := s.checkOverlap(ctx, e.app.ID, e.app.Grants); err != nil {
				return err
			}
		}
		if err := s.plan(ctx, c.Plan); err != nil {
			return err
		}
		if c.Config != nil {
			config, err := s.unmasked(c.Config, e.was.config)
			if err != nil {
				return err
			}
			e.newConfig(config)
		}
		if err := s.checkRateAgents(c.Limits.Rates, e.was.app.Limits.Rates, e.config); err != nil {
			return err
		}
		if c.Config == nil && !e.rebuild {
			return nil
		}
		return s.check(ctx, e.config, &e.app, e.secrets)
	})
}

// apply takes over all of c but its configuration, which is only looked at.
func (e *edit) apply(c Change, guard *grant.Guard) error {
	if c.Config != nil {
		if err := checkConfig(c.Config); err != nil {
			return err
		}
	}
	if c.DisplayName != nil {
		if err := checkText("display_name", *c.DisplayName, maxDisplay); err != nil {
			return err
		}
		e.app.DisplayName = *c.DisplayName
	}
	if c.Labels != nil {
		if err := checkLabels(c.Labels); err != nil {
			return err
		}
		e.app.Labels = maps.Clone(c.Labels)
	}
	if c.Plan != nil {
		if err := checkPlan(*c.Plan); err != nil {
			return err
		}
		if e.app.Plan != *c.Plan {
			e.app.Plan, e.rebuild = *c.Plan, true
		}
	}
	limits, err := c.Limits.apply(e.app.Limits)
	if err != nil {
		return err
	}
	if !e.app.Limits.equal(limits) {
		e.app.Limits, e.rebuild = limits, true
	}
	if c.Grants != nil {
		grants, err := tidyGrants(c.Grants, guard)
		if err != nil {
			return err
		}
		if !grants.Equal(e.app.Grants) {
			e.app.Grants, e.rebuild = grants, true
		}
	}
	if c.Auth != nil {
		e.app.Auth = *c.Auth
	}
	if e.app.Auth != (Auth{}) {
		if err := e.app.Auth.check(e.app.Grants); err != nil {
			return err
		}
	}
	return e.putSecrets(c.Secrets)
}

// putSecrets adds secrets to those of the app.
func (e *edit) putSecrets(secrets map[string]string) error {
	if len(secrets) == 0 {
		return nil
	}
	if err := checkSecrets(secrets); err != nil {
		return err
	}
	maps.Copy(e.secrets, secrets)
	if len(e.secrets) > MaxSecrets {
		return invalid("secrets", "there would be %d, %d are allowed", len(e.secrets), MaxSecrets)
	}
	e.put, e.rebuild, e.detail["secrets"] = secrets, true, names(secrets)
	return nil
}

// Suspend makes an app refuse every call until it is resumed. The reason goes into the audit trail.
func (s *Service) Suspend(ctx context.Context, actor, name, reason string) (App, error) {
	return s.turn(ctx, actor, "app.suspend", name, reason, Suspended)
}

// Resume ends a suspension.
func (s *Service) Resume(ctx context.Context, actor, name, reason string) (App, error) {
	return s.turn(ctx, actor, "app.resume", name, reason, Active)
}

func (s *Service) turn(ctx context.Context, actor, action, name, reason string, to Status) (App, error) {
	if err := checkText("reason", reason, 1000); err != nil {
		return App{}, err
	}
	return s.change(ctx, actor, action, name, false, func(e *edit) error {
		e.app.Status = to
		if reason != "" {
			e.detail["reason"] = reason
		}
		return nil
	})
}
