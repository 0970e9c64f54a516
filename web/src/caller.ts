import { useQuery } from "@tanstack/react-query";
import { get, type Schema } from "./api";
import { session, type Session } from "./session";

export type Caller = Schema["Caller"];

// defaultApp is the name of the app whose configuration is its server's file.
export const defaultApp = "default";

export const callerKey = (s: Session | null) => ["caller", s] as const;

// readCaller asks who the credential of a session stands for, and what it allows.
export const readCaller = (s: Session | null, signal?: AbortSignal) => get<Caller>("/caller", signal, s);

// useCaller reads it for the session, again and again: a credential that was revoked is thrown out also of a page that asks for nothing
// else. The operator's credential is for the admin API alone.
export function useCaller() {
  const who = session.use();
  return useQuery({ queryKey: callerKey(who), queryFn: ({ signal }) => readCaller(who, signal), enabled: !!who && !who.operator, staleTime: 60_000, refetchInterval: 5000, refetchIntervalInBackground: true });
}

// has reports whether a caller has a scope; agents:call also for some agents alone.
export const has = (caller: Caller, scope: string) => caller.scopes.some((s) => s === scope || (scope === "agents:call" && s.startsWith(`${scope}:`)));

// useMay reports whether the session's credential has a scope. What is not known yet is not offered; where it cannot be known,
// everything is, and the server decides.
export function useMay(scope: string): boolean {
  const { data, isError } = useCaller();
  return data ? has(data, scope) : isError;
}

// useMayCall returns which agents the session's credential may call.
export function useMayCall(): (agent: string) => boolean {
  const { data, isError } = useCaller();
  return (agent) => (data ? data.scopes.some((s) => s === "agents:call" || s === `agents:call:${agent}`) : isError);
}

// useMayCancel reports whether the session's credential may cancel a task, or restore it: any of the app with tasks:cancel, its own
// with agents:call for the task's agent.
export function useMayCancel(task: { own?: boolean; agent?: string } | undefined): boolean {
  const any = useMay("tasks:cancel");
  const { data } = useCaller();
  return any || (!!task?.own && !!data?.scopes.some((s) => s === "agents:call" || s === `agents:call:${task.agent}`));
}
