package server

import (
	"context"

	"stoa/tenancy"
	"stoa/tenancy/transfer"
)

// newTransfer returns the service that exports and imports apps.
func newTransfer(s *Server) *transfer.Service {
	o := transfer.Options{Issuer: s.identity.issuer.TrustedIssuer().Issuer}
	if books := s.Dependencies.Billing; books != nil {
		o.InTx = books.AdoptApp
		o.Imported = func(ctx context.Context, app tenancy.App) {
			if err := books.CountAdopted(ctx); err != nil {
				s.Log.WarnContext(ctx, "the usage of an imported app is not in the balances of the platform's budgets yet", "app", app.Name, "error", err)
			}
		}
	}
	return transfer.New(s.Storage.DB, s.Storage.keyring, s.Apps, o)
}
