package server

import (
	"stoa/agentsvc/surface"
	"stoa/agentsvc/surface/a2agrpc"
	"stoa/agentsvc/surface/ext"
	"stoa/authz"
	"stoa/tenancy"
)

// newCardSigner returns the signer of agent cards, nil unless --sign-cards is set. The signature (A2A specification,
// AgentCardSignature) covers the canonical JSON of the card, and names the URL below publicURL that serves the
// verification keys. The keys are derived from the master keys, so that all processes sign alike.
func newCardSigner(s Settings, keys *tenancy.Keyring, publicURL string) (*authz.CardSigner, error) {
	if !s.Cards.Sign {
		return nil, nil
	}
	return authz.NewCardSigner(keys, publicURL+ext.CardKeysPath)
}

// signCard returns the signature of an agent card.
func signCard(signer *authz.CardSigner, card []byte) (surface.CardSignature, error) {
	// The signature covers the card without its signatures, in canonical JSON (A2A 1.0, 8.4.1; RFC 8785).
	payload, err := a2agrpc.CanonicalCard(card)
	if err != nil {
		return surface.CardSignature{}, err
	}
	protected, signature, err := signer.Sign(payload)
	return surface.CardSignature{Protected: protected, Signature: signature}, err
}
