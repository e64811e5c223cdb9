// Makes the search work when the site is opened from the disk. Browsers start no Worker there, so the worker's script
// runs in a hidden frame instead. Replaces the script of this name that the theme would fetch from the network.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(url) {
      super();
      const frame = document.createElement("iframe");
      frame.hidden = true;
      document.body.append(frame);
      this.scope = frame.contentWindow;
      const page = this.scope.document;
      page.open();
      this.scope.postMessage = (data) =>
        setTimeout(() => this.dispatchEvent(new MessageEvent("message", { data })));
      this.loaded = new Promise((done) => {
        this.scope.loaded = done;
      });
      page.write(`<script src="${url}" onload="loaded()"></script>`);
      page.close();
    }

    async postMessage(data) {
      await this.loaded;
      this.scope.dispatchEvent(new MessageEvent("message", { data }));
    }
  };
}
