package main

import (
	"stoa/agentsvc/surface"
	"stoa/agentsvc/surface/a2agrpc"
	"stoa/agentsvc/surface/ext"
	"stoa/authz"
)

// configureCardSigning lets o sign agent cards if --sign-cards is set. The signature (A2A specification,
// AgentCardSignature) covers the canonical JSON of the card, and names the URL below the public URL that serves the
// verification keys. The keys are derived from the master keys, so that all processes sign alike.
func (h *server) configureCardSigning(o *surface.Options) error {
	if !h.settings.signCards {
		return nil
	}
	signer, err := authz.NewCardSigner(h.keyring, o.PublicURL+ext.CardKeysPath)
	if err != nil {
		return err
	}
	h.cardJWKS = signer.JWKS
	o.SignCard = func(card []byte) (surface.CardSignature, error) {
		// The signature covers the card without its signatures, in canonical JSON (A2A 1.0, 8.4.1; RFC 8785).
		payload, err := a2agrpc.CanonicalCard(card)
		if err != nil {
			return surface.CardSignature{}, err
		}
		protected, signature, err := signer.Sign(payload)
		return surface.CardSignature{Protected: protected, Signature: signature}, err
	}
	return nil
}
