package main

import (
	"stoa/agentsvc/surface"
	"stoa/agentsvc/surface/a2agrpc"
	"stoa/agentsvc/surface/ext"
	"stoa/authz"
)

// configureCardSigning has the door sign the cards of agents, if it is to, by keys that lie below the public URL.
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
		payload, err := a2agrpc.CanonicalCard(card)
		if err != nil {
			return surface.CardSignature{}, err
		}
		protected, signature, err := signer.Sign(payload)
		return surface.CardSignature{Protected: protected, Signature: signature}, err
	}
	return nil
}
