// Signing in at the OpenID provider of the server: authorization code with PKCE (RFC 7636). The console has no secret.

export interface Provider {
  issuer: string;
  client_id: string;
  audience?: string;
}

interface Discovery {
  authorization_endpoint: string;
  token_endpoint: string;
  scopes_supported?: string[];
}

// Renewal is what gets the next token before one expires. expires is in milliseconds since 1970.
export interface Renewal {
  endpoint: string;
  client: string;
  resource: string;
  refresh: string;
  expires: number;
}

// Attempt is kept while the person is at the provider. It holds no credential.
interface Attempt {
  state: string;
  verifier: string;
  issuer: string;
  client: string;
  resource: string;
  endpoint: string;
  keep: boolean;
  path: string;
}

const storageKey = "stoa.signin";

const encode = (bytes: Uint8Array) => btoa(String.fromCharCode(...bytes)).replaceAll("+", "-").replaceAll("/", "_").replaceAll("=", "");
const random = () => encode(crypto.getRandomValues(new Uint8Array(32)));
// The page's own address is registered at the provider.
const redirectUri = () => location.href.replace(/\/console\/.*$/, "/console/");

// beginSignIn leads to the provider.
export async function beginSignIn(provider: Provider, keep: boolean): Promise<void> {
  if (!window.isSecureContext) throw new Error("Browsers sign in at a provider only from pages with https, or from localhost.");
  const discovery = (await reach(`${provider.issuer.replace(/\/$/, "")}/.well-known/openid-configuration`)) as unknown as Discovery;
  const resource = /^https?:/.test(provider.audience ?? "") ? provider.audience! : "";
  const attempt: Attempt = {
    state: random(),
    verifier: random(),
    issuer: provider.issuer,
    client: provider.client_id,
    resource,
    endpoint: discovery.token_endpoint,
    keep,
    path: location.pathname + location.search,
  };
  sessionStorage.setItem(storageKey, JSON.stringify(attempt));
  const digest = await crypto.subtle.digest("SHA-256", new TextEncoder().encode(attempt.verifier));
  const query = new URLSearchParams({
    response_type: "code",
    client_id: provider.client_id,
    redirect_uri: redirectUri(),
    scope: `openid profile${discovery.scopes_supported?.includes("offline_access") ? " offline_access" : ""}`,
    state: attempt.state,
    code_challenge: encode(new Uint8Array(digest)),
    code_challenge_method: "S256",
    // Providers name the API that a token is for in one of two ways.
    ...(provider.audience && { audience: provider.audience }),
    ...(resource && { resource }),
  });
  location.assign(`${discovery.authorization_endpoint}${discovery.authorization_endpoint.includes("?") ? "&" : "?"}${query}`);
}

// Answer is what the provider has sent the browser back with.
export interface Answer {
  attempt: Attempt;
  code: string;
}

// takeAnswer returns the answer in the page's address, once, and removes it from the address and the history. It returns an
// error for one that was not asked for, or that refuses.
export function takeAnswer(): Answer | Error | null {
  const query = new URLSearchParams(location.search);
  const saved = sessionStorage.getItem(storageKey);
  if (!query.has("state") || !(query.has("code") || query.has("error"))) return null;
  sessionStorage.removeItem(storageKey);
  const attempt = saved ? (JSON.parse(saved) as Attempt) : null;
  history.replaceState(null, "", attempt?.path ?? location.pathname);
  // Another page could begin a sign-in with its own account: only what this tab began is finished (RFC 9700, 2.1).
  if (!attempt || query.get("state") !== attempt.state) return new Error("The answer of the provider belongs to another sign-in. Sign in again.");
  if (query.has("iss") && query.get("iss") !== attempt.issuer) return new Error("The answer is of another provider. Sign in again.");
  if (query.has("error")) return new Error(`The provider refused: ${query.get("error_description") ?? query.get("error")}`);
  return { attempt, code: query.get("code") ?? "" };
}

// redeem gets the token for a code.
export async function redeem({ attempt, code }: Answer): Promise<{ token: string; renewal: Renewal | null }> {
  const body = { grant_type: "authorization_code", code, redirect_uri: redirectUri(), client_id: attempt.client, code_verifier: attempt.verifier, ...(attempt.resource && { resource: attempt.resource }) };
  return tokenOf(await reach(attempt.endpoint, body), { endpoint: attempt.endpoint, client: attempt.client, resource: attempt.resource, refresh: "", expires: 0 });
}

// renew gets the next token.
export async function renew(r: Renewal): Promise<{ token: string; renewal: Renewal | null }> {
  return tokenOf(await reach(r.endpoint, { grant_type: "refresh_token", refresh_token: r.refresh, client_id: r.client, ...(r.resource && { resource: r.resource }) }), r);
}

function tokenOf(answer: Record<string, unknown>, before: Renewal): { token: string; renewal: Renewal | null } {
  const token = answer["access_token"];
  if (typeof token !== "string") throw new Error("The provider sent no access token.");
  const refresh = typeof answer["refresh_token"] === "string" ? answer["refresh_token"] : before.refresh;
  const seconds = typeof answer["expires_in"] === "number" ? answer["expires_in"] : 0;
  return { token, renewal: refresh && seconds ? { ...before, refresh, expires: Date.now() + seconds * 1000 } : null };
}

// reach reads JSON of the provider.
async function reach(address: string, form?: Record<string, string>): Promise<Record<string, unknown>> {
  let response: Response;
  try {
    response = await fetch(address, { method: form ? "POST" : "GET", ...(form && { body: new URLSearchParams(form) }), credentials: "omit", redirect: "error" });
  } catch {
    throw new Error(`The provider at ${new URL(address).host} cannot be reached from this page: it does not answer, does not allow this page (CORS), or has another host than its issuer.`);
  }
  const body = (await response.json().catch(() => ({}))) as Record<string, unknown>;
  if (!response.ok) throw new Error(`The provider answered ${response.status}: ${String(body["error_description"] ?? body["error"] ?? "")}`);
  return body;
}
