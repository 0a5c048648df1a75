# docker build -t rowhouse .
# docker run -p 10002:10002 -v rowhouse:/data -e ROWHOUSE_ACCOUNTS="myaccount:$(openssl rand -base64 64 | tr -d '\n')" rowhouse
# To try it with the account that everybody knows, on this machine alone:
# docker run -p 127.0.0.1:10002:10002 -e ROWHOUSE_ALLOW_DEVELOPMENT_ACCOUNT=true rowhouse
#
# In place of Azurite's image, for tools that start that one:
# docker build --target azurite -t rowhouse-azurite .
# docker run -p 10000-10002:10000-10002 rowhouse-azurite

ARG BUILD_IMAGE=rust:1.95-slim-bookworm
ARG RUN_IMAGE=debian:bookworm-slim

FROM ${BUILD_IMAGE} AS build
RUN apt-get update \
    && apt-get install -y --no-install-recommends gcc libc6-dev \
    && rm -rf /var/lib/apt/lists/*
WORKDIR /build
# The dependencies are a layer of their own: it is built again only when they change.
COPY Cargo.toml Cargo.lock ./
COPY .cargo .cargo
COPY benches benches
RUN mkdir src \
    && echo 'fn main() {}' > src/main.rs \
    && touch src/lib.rs \
    && cargo build --release --locked --bin rowhouse \
    && rm -r src
COPY migrations migrations
COPY src src
# Cargo tells what changed by its date, which COPY takes from the checkout.
RUN touch src/main.rs src/lib.rs && cargo build --release --locked --bin rowhouse

FROM ${RUN_IMAGE} AS base
# The root certificates are for PostgreSQL over TLS.
RUN apt-get update \
    && apt-get install -y --no-install-recommends ca-certificates \
    && rm -rf /var/lib/apt/lists/*
COPY --from=build /build/target/release/rowhouse /usr/local/bin/rowhouse
COPY LICENSE LICENSE-APACHE LICENSE-MIT /usr/share/doc/rowhouse/

FROM base AS azurite
# The names say what is wanted. Tools give `azurite …` as the command, or `azurite`
# as the entry point, so there is none here. Nor is there a user: folders of the
# host that are mounted at /data belong to root, as with Azurite's image.
RUN ln -s rowhouse /usr/local/bin/azurite \
    && ln -s rowhouse /usr/local/bin/azurite-table
WORKDIR /data
VOLUME /data
EXPOSE 10000 10001 10002
STOPSIGNAL SIGTERM
CMD ["azurite", "-l", "/data", "--blobHost", "0.0.0.0", "--queueHost", "0.0.0.0", "--tableHost", "0.0.0.0"]

# The last stage is what is built unless told otherwise.
FROM base AS rowhouse
RUN useradd --system --uid 10001 --no-create-home --shell /usr/sbin/nologin rowhouse \
    && install -d -o rowhouse -g rowhouse /data
USER 10001
WORKDIR /data
VOLUME /data
# Without DATABASE_URL, entities are in /data/rowhouse.db.
ENV ROWHOUSE_LISTEN=0.0.0.0:10002
EXPOSE 10002
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=10s --timeout=5s --start-period=30s CMD ["rowhouse", "healthcheck"]
ENTRYPOINT ["rowhouse"]
CMD ["serve"]
