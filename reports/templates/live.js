// What a served page does besides: asks how far the sweep is, and loads the page again when trials have landed.
"use strict";
{
  const strip = document.getElementById("live"), bar = strip.querySelector("progress"), text = strip.querySelector("span");
  const version = strip.dataset.version;
  const ask = async () => {
    try {
      const answer = await fetch("/state.json", { cache: "no-store" });
      if (!answer.ok) throw new Error();
      const state = await answer.json();
      if (state.version !== version) { location.reload(); return; }
      if (state.planned) { bar.max = state.planned; bar.value = state.done; }
      text.textContent = `${state.done}${state.planned ? ` of ${state.planned}` : ""} trials`;
      if (state.finished) return;
    } catch {
      text.textContent = "the server has ended; this is what it showed last";
    }
    setTimeout(ask, 2000);
  };
  setTimeout(ask, 1000);
}
