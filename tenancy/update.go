package tenancy

import (
	"context"
	"maps"

	"stoa/agentsvc"
	"stoa/tenancy/audit"
	"stoa/tenancy/grant"
)

// AppChange is a change of an app. A field that is nil is left as it is.
type AppChange struct {
	DisplayName *string
	// Config is the new configuration. Values masked in an earlier response are restored to what they stand for.
	Config []byte
	// Secrets are added to the existing ones, replacing those of the same name; RemovedSecrets are removed.
	Secrets        map[string]string
	RemovedSecrets []string
	// Grants replace all grants; an empty list removes them.
	Grants grant.List
	Plan   *string
	Limits LimitsChange
	// Auth replaces the app's issuer; a pointer to the zero value removes it.
	Auth   *IssuerConfig
	Labels map[string]string
	Precondition
}

// UpdateApp changes an app and returns the result; with dryRun it only checks the change. It returns
// [agentsvc.CodePrecondition] if the app is not in the state that c demands, and an error with [agentsvc.CodeInvalid]
// for a bad field. A configuration that would not load is refused.
func (s *Service) UpdateApp(ctx context.Context, actor audit.Actor, name string, c AppChange, dryRun bool) (App, error) {
	return s.PatchApp(ctx, actor, name, func(func() App) (AppChange, error) { return c, nil }, dryRun)
}

// PatchApp is [Service.UpdateApp] with a change that patch computes from the app as it is, which current returns with its
// masked configuration. patch may be called several times, see [store.changeApp].
func (s *Service) PatchApp(ctx context.Context, actor audit.Actor, name string, patch func(current func() App) (AppChange, error), dryRun bool) (App, error) {
	return s.store.changeApp(ctx, actor, "app.update", name, dryRun, func(e *appEdit) error {
		c, err := patch(func() App { return s.store.maskedApp(e.previous.app, e.previous.config) })
		if err != nil {
			return err
		}
		if err := e.app.checkPrecondition(c.Precondition); err != nil {
			return err
		}
		if err := e.applyChange(c, s.store.options.Guard); err != nil {
			return err
		}
		if err := s.checkIssuerHost(ctx, &e.app, &e.previous.app); err != nil {
			return err
		}
		if !e.app.Grants.Equal(e.previous.app.Grants) {
			if err := s.checkGrantOverlap(ctx, e.app.ID, e.app.Grants); err != nil {
				return err
			}
		}
		if err := s.checkPlanExists(ctx, c.Plan); err != nil {
			return err
		}
		if c.Config != nil {
			e.setConfig(s.store.restoreMasked(c.Config, e.previous.config))
		}
		if err := s.checkRateAgents(c.Limits.Rates, e.previous.app.Limits.Rates, e.config); err != nil {
			return err
		}
		// Nothing changes that the configuration is built from, so it need not be checked; this keeps an app editable
		// whose configuration does not load any more.
		if c.Config == nil && !e.rebuild {
			return nil
		}
		return s.store.checkConfigLoads(ctx, e.config, &e.app, e.secrets)
	})
}

// applyChange applies c to the edit, except the configuration, of which it checks only the size.
func (e *appEdit) applyChange(c AppChange, guard *grant.Guard) error {
	if c.Config != nil {
		if err := checkConfig(c.Config); err != nil {
			return err
		}
	}
	if c.DisplayName != nil {
		if err := checkText("display_name", *c.DisplayName, maxDisplayName); err != nil {
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
	limits, err := c.Limits.applyTo(e.app.Limits)
	if err != nil {
		return err
	}
	if !e.app.Limits.equalTo(limits) {
		e.app.Limits, e.rebuild = limits, true
	}
	if c.Grants != nil {
		grants, err := normalizeGrants(c.Grants, guard)
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
	if e.app.Auth != (IssuerConfig{}) {
		if err := e.app.Auth.checkFields(e.app.Grants); err != nil {
			return err
		}
	}
	e.removeSecrets(c.RemovedSecrets)
	return e.addSecrets(c.Secrets)
}

// removeSecrets removes those secrets that the app has and marks the app for a new build.
func (e *appEdit) removeSecrets(names []string) {
	for _, name := range names {
		if _, has := e.secrets[name]; has {
			delete(e.secrets, name)
			e.secretsToDelete, e.rebuild = append(e.secretsToDelete, name), true
		}
	}
	if e.secretsToDelete != nil {
		e.detail["removed_secrets"] = e.secretsToDelete
	}
}

// addSecrets adds secrets to those of the app and marks the app for a new build.
func (e *appEdit) addSecrets(secrets map[string]string) error {
	if len(secrets) == 0 {
		return nil
	}
	if err := checkSecrets(secrets); err != nil {
		return err
	}
	maps.Copy(e.secrets, secrets)
	if len(e.secrets) > MaxSecrets {
		return agentsvc.NewInvalidError("secrets", "there would be %d, %d are allowed", len(e.secrets), MaxSecrets)
	}
	e.secretsToStore, e.rebuild, e.detail["secrets"] = secrets, true, sortedNames(secrets)
	return nil
}

// SuspendApp makes an app refuse every request until it is resumed. The reason is written to the audit trail. ifMatch is
// [Precondition].IfMatch, here and in the other methods.
func (s *Service) SuspendApp(ctx context.Context, actor audit.Actor, name, reason string, ifMatch ...string) (App, error) {
	return s.setStatus(ctx, actor, "app.suspend", name, reason, Suspended, ifMatch)
}

// ResumeApp makes a suspended app active again.
func (s *Service) ResumeApp(ctx context.Context, actor audit.Actor, name, reason string, ifMatch ...string) (App, error) {
	return s.setStatus(ctx, actor, "app.resume", name, reason, Active, ifMatch)
}

// setStatus changes an app's status; reason has at most 1000 characters.
func (s *Service) setStatus(ctx context.Context, actor audit.Actor, action, name, reason string, to Status, ifMatch []string) (App, error) {
	if err := checkText("reason", reason, 1000); err != nil {
		return App{}, err
	}
	return s.store.changeApp(ctx, actor, action, name, false, func(e *appEdit) error {
		if err := e.app.checkTag(ifMatch); err != nil {
			return err
		}
		e.app.Status = to
		if reason != "" {
			e.detail["reason"] = reason
		}
		return nil
	})
}
