"""Settings of the test project. ``SHOP_DATABASE`` names its database."""

import importlib.util
import json
import os
from pathlib import Path
from urllib.parse import unquote, urlsplit

BASE_DIR = Path(__file__).resolve().parent.parent
SECRET_KEY = "tests only"
DEBUG = True
ALLOWED_HOSTS = ["*"]
USE_TZ = True
ROOT_URLCONF = "project.urls"
ASGI_APPLICATION = "project.asgi.application"
WSGI_APPLICATION = "project.wsgi.application"

_url = urlsplit(os.environ["SHOP_DATABASE"])
if _url.scheme == "sqlite":
    _file = unquote(_url.path)[1:]
    _database = {"ENGINE": "django.db.backends.sqlite3", "NAME": _file}
    if os.environ.get("SHOP_TEST_FILE"):
        _database["TEST"] = {"NAME": os.environ["SHOP_TEST_FILE"]}
    # Django begins transactions without a write lock by default, and two writers then collide.
    _database["OPTIONS"] = {"transaction_mode": "IMMEDIATE", "timeout": 20}
else:
    _database = {
        "ENGINE": "django.db.backends.postgresql",
        "NAME": _url.path[1:],
        "USER": _url.username or "",
        "PASSWORD": _url.password or "",
        "HOST": _url.hostname or "",
        "PORT": str(_url.port or ""),
        "CONN_MAX_AGE": None,
    }
DATABASES = {"default": _database}

INSTALLED_APPS = [
    "django.contrib.admin",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    "tidemill.contrib.django",
    "shop",
]
if importlib.util.find_spec("django.tasks") is None:
    INSTALLED_APPS.append("django_tasks")
if os.environ.get("SHOP_BEAT"):
    INSTALLED_APPS.append("django_celery_beat")
MIDDLEWARE = [
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
]
TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
            ]
        },
    }
]
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
LOGIN_URL = "/admin/login/"
TASKS = {
    "default": {"BACKEND": "tidemill.contrib.django.Backend", "QUEUES": []},
    "patient": {
        "BACKEND": "tidemill.contrib.django.Backend",
        "QUEUES": ["default", "mail"],
        "OPTIONS": {"retry": 3, "timeout": "10s"},
    },
}
if os.environ.get("SHOP_TIDEMILL"):
    TIDEMILL = json.loads(os.environ["SHOP_TIDEMILL"])
if os.environ.get("SHOP_TENANTS"):
    _database["ENGINE"] = "django_tenants.postgresql_backend"
    TENANT_APPS = ["shop"]
    SHARED_APPS = ["django_tenants", "customers", *(app for app in INSTALLED_APPS if app != "shop")]
    INSTALLED_APPS = [*SHARED_APPS, *TENANT_APPS]
    DATABASE_ROUTERS = ["django_tenants.routers.TenantSyncRouter"]
    TENANT_MODEL, TENANT_DOMAIN_MODEL = "customers.Customer", "customers.Domain"
    MIDDLEWARE = ["django_tenants.middleware.main.TenantMainMiddleware", *MIDDLEWARE]
    PUBLIC_SCHEMA_URLCONF = ROOT_URLCONF
    TIDEMILL = {"tenants": "tidemill.contrib.django.tenants.DjangoTenants"}
